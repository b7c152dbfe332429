"""KDTree answers as scipy's does."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from nearjoin.spatial import KDTree, cKDTree

spatial = pytest.importorskip("scipy.spatial")

NORMS = [1, 2.0, np.inf]
LINE = [[0.0], [1.0], [5.0]]


def made(n: int, m: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, m))


def both(points: Any) -> tuple[KDTree, Any]:
    return KDTree(points), spatial.KDTree(points)


def as_lists(balls: Any) -> list[list[int]]:
    return [sorted(ball) for ball in (balls if isinstance(balls, list) else balls.ravel())]


# The points


def test_attributes() -> None:
    points = made(100, 4)
    tree, theirs = both(points)
    assert tree.data is points
    for name in ("n", "m", "leafsize", "boxsize"):
        assert getattr(tree, name) == getattr(theirs, name)
        assert type(getattr(tree, name)) is type(getattr(theirs, name))
    assert_array_equal(tree.mins, theirs.mins)
    assert_array_equal(tree.maxes, theirs.maxes)
    assert KDTree(points, 3).leafsize == 3
    assert cKDTree is KDTree


def test_options_of_the_tree_do_not_change_answers() -> None:
    points = made(50, 2)
    tree = KDTree(points, leafsize=1, compact_nodes=False, balanced_tree=False, boxsize=0)
    assert tree.query_pairs(0.3) == spatial.KDTree(points).query_pairs(0.3)


def test_copied_points_do_not_follow_the_original() -> None:
    points = made(20, 2)
    tree, before = KDTree(points, copy_data=True), points.copy()
    points += 10
    assert_array_equal(tree.data, before)


def test_pickled() -> None:
    tree = KDTree(made(20, 3))
    again = pickle.loads(pickle.dumps(tree))
    assert_array_equal(again.query(tree.data, 3), tree.query(tree.data, 3))


@pytest.mark.parametrize("points", [[[0, 1], [2, 3]], np.eye(3, dtype=np.int8), np.eye(4)[:, ::2]])
def test_what_is_no_float_array_becomes_one(points: Any) -> None:
    tree, theirs = both(points)
    assert tree.data.dtype == np.float64
    assert_array_equal(tree.query(points, 2)[0], theirs.query(points, 2)[0])


@pytest.mark.parametrize(
    ("points", "error", "words"),
    [
        (3.0, ValueError, "shape"),
        ([1.0, 2.0], ValueError, "shape"),
        ([], ValueError, "shape"),
        (np.zeros((2, 2, 2)), ValueError, "shape"),
        (np.zeros((2, 0)), ValueError, "shape"),
        ([[0.0, np.nan]], ValueError, "must be finite"),
        ([[0.0, -np.inf]], ValueError, "must be finite"),
        ([[1j]], TypeError, "complex data"),
    ],
)
def test_points_that_are_refused(points: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        KDTree(points)


def test_options_that_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="periodic"):
        KDTree(LINE, boxsize=10.0)
    with pytest.raises(ValueError, match="leafsize"):
        KDTree(LINE, leafsize=0)


CALLS: list[Callable[..., Any]] = [
    lambda tree, **options: tree.query([[0.0]], **options),
    lambda tree, **options: tree.query_ball_point([[0.0]], 1.0, **options),
    lambda tree, **options: tree.query_ball_tree(tree, 1.0, **options),
    lambda tree, **options: tree.query_pairs(1.0, **options),
    lambda tree, **options: tree.count_neighbors(tree, 1.0, **options),
    lambda tree, **options: tree.sparse_distance_matrix(tree, 1.0, **options),
]


@pytest.mark.parametrize("call", CALLS)
def test_norms_that_are_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(NotImplementedError, match="p = 3"):
        call(KDTree(LINE), p=3)
    with pytest.raises(ValueError, match="p must be at least 1"):
        call(KDTree(LINE), p=0.5)


@pytest.mark.parametrize("call", CALLS[:4])
def test_approximation_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(NotImplementedError, match="approximate"):
        call(KDTree(LINE), eps=0.1)
    with pytest.raises(ValueError, match="eps"):
        call(KDTree(LINE), eps=-0.1)


@pytest.mark.parametrize("call", CALLS[:2])
def test_workers(call: Callable[..., Any]) -> None:
    tree = KDTree(LINE)
    for workers in (1, 2, -1, 10_000, np.int64(2), None):
        assert_array_equal(call(tree, workers=workers), call(tree))
    for workers in (0, -2):
        with pytest.raises(ValueError, match="workers"):
            call(tree, workers=workers)
    with pytest.raises(TypeError):
        call(tree, workers=1.5)


@pytest.mark.parametrize("method", ["query_ball_tree", "count_neighbors", "sparse_distance_matrix"])
def test_the_other_tree_must_fit(method: str) -> None:
    ask = getattr(KDTree(LINE), method)
    with pytest.raises(ValueError, match="different dimensions, 1 and 2"):
        ask(KDTree([[0.0, 0.0]]), 1.0)
    with pytest.raises(TypeError, match="other must be"):
        ask(np.zeros((3, 1)), 1.0)


# The nearest


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("m", [1, 2, 3, 7])
@pytest.mark.parametrize("k", [1, 2, 9, [1], [2, 5], range(1, 4), np.array([7, 1, 1])])
def test_nearest(p: float, m: int, k: Any) -> None:
    tree, theirs = both(made(300, m))
    for x in (made(40, m, 1), made(24, m, 2).reshape(2, 3, 4, m), made(1, m, 3)[0], tree.data):
        d, i = tree.query(x, k, p=p)
        expected_d, expected_i = theirs.query(x, k, p=p)
        assert np.shape(d) == np.shape(expected_d)
        assert np.shape(i) == np.shape(expected_i)
        assert_allclose(d, expected_d, rtol=1e-13)
        assert_array_equal(i, expected_i)
        assert np.asarray(i).dtype == np.intp


def test_nearest_of_one_point_are_numbers() -> None:
    d, i = KDTree(LINE).query([0.75])
    assert type(d) is float
    assert isinstance(i, np.signedinteger)
    assert (d, i) == (0.25, 1)


def test_missing_neighbours() -> None:
    tree, theirs = both(made(5, 2))
    x = made(3, 2, 1)
    for k in (8, [1, 6, 70]):
        for ours, expected in zip(tree.query(x, k), theirs.query(x, k)):
            assert_allclose(ours, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_upper_bound_is_exclusive(dtype: type[np.floating]) -> None:
    tree = KDTree(np.array(LINE, dtype))
    x = np.zeros((1, 1), dtype)
    above = np.nextafter(dtype(1), dtype(2))
    for bound, found in [(0, 0), (1e-30, 1), (1, 1), (above, 2), (5, 2), (1e300, 3), (np.inf, 3)]:
        d, i = tree.query(x, 3, distance_upper_bound=bound)
        assert np.isfinite(d).sum() == found
        assert_array_equal(i[0, found:], 3)
    for bound in (-1.0, -np.inf, np.nan):
        assert not np.isfinite(tree.query(x, 3, distance_upper_bound=bound)[0]).any()


@pytest.mark.parametrize("p", NORMS)
def test_upper_bound(p: float) -> None:
    tree, theirs = both(made(200, 3))
    x = made(50, 3, 1)
    for ours, expected in zip(
        tree.query(x, 20, p=p, distance_upper_bound=0.7),
        theirs.query(x, 20, p=p, distance_upper_bound=0.7),
    ):
        assert_allclose(ours, expected)


def test_ties_go_to_the_smaller_index() -> None:
    tree = KDTree(np.repeat(made(3, 2), 4, axis=0))
    for x in (tree.data, tree.data.copy()):
        d, i = tree.query(x, 4)
        assert_array_equal(d, 0)
        assert_array_equal(i, np.arange(12).reshape(3, 4).repeat(4, axis=0))


@pytest.mark.parametrize("k", [None, 1.5, "1", [], [[1]], [1.0]])
def test_k_must_be_whole(k: Any) -> None:
    with pytest.raises(ValueError, match="k must be an integer or a sequence of integers"):
        KDTree(LINE).query([0.0], k)


@pytest.mark.parametrize("k", [0, -1, [1, 0]])
def test_k_counts_from_one(k: Any) -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        KDTree(LINE).query([0.0], k)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (0.0, ValueError, "coordinates"),
        ([0.0], ValueError, "coordinates"),
        ([[0.0, 0.0, 0.0]], ValueError, "coordinates"),
        ([0.0, np.nan], ValueError, "must be finite"),
        ([[0.0, 0.0], [np.inf, 0.0]], ValueError, "must be finite"),
        ([0.0, 1j], TypeError, "complex data"),
    ],
)
def test_queries_that_are_refused(x: Any, error: type[Exception], words: str) -> None:
    tree = KDTree(made(5, 2))
    with pytest.raises(error, match=words):
        tree.query(x)
    with pytest.raises(error, match=words):
        tree.query_ball_point(x, 1.0)


# Within a radius


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("r", [0, 0.5, 2.0, np.inf])
def test_balls(p: float, r: float) -> None:
    tree, theirs = both(made(150, 3))
    for x in (made(40, 3, 1), made(24, 3, 2).reshape(2, 3, 4, 3), tree.data):
        balls, expected = tree.query_ball_point(x, r, p), theirs.query_ball_point(x, r, p)
        assert balls.dtype == object
        assert balls.shape == expected.shape
        assert balls.ravel().tolist() == as_lists(expected)
        lengths = tree.query_ball_point(x, r, p, return_length=True)
        assert lengths.dtype == np.intp
        assert_array_equal(lengths, theirs.query_ball_point(x, r, p, return_length=True))


@pytest.mark.parametrize("return_sorted", [None, True, False])
def test_balls_are_sorted_lists_of_int(return_sorted: Any) -> None:
    tree = KDTree(made(100, 1))
    ball = tree.query_ball_point([0.0], 1.0, return_sorted=return_sorted)
    assert type(ball) is list
    assert {type(index) for index in ball} == {int}
    assert ball == sorted(ball)
    assert tree.query_ball_point([[0.0]], 1.0, return_sorted=return_sorted)[0] == ball
    assert tree.query_ball_point([0.0], 1.0, return_length=True) == len(ball)


@pytest.mark.parametrize("p", NORMS)
def test_balls_of_different_radii(p: float) -> None:
    tree, theirs = both(made(150, 2))
    x = made(24, 2, 1).reshape(4, 6, 2)
    for r in (np.linspace(0, 2, 6), np.linspace(0, 1, 4)[:, None], np.geomspace(0.01, 9, 24)):
        r = r.reshape(4, 6) if r.size == 24 else r
        every = np.broadcast_to(r, (4, 6))
        balls = tree.query_ball_point(x, r, p)
        assert balls.ravel().tolist() == as_lists(theirs.query_ball_point(x, every, p))
        lengths = tree.query_ball_point(x, r, p, return_length=True)
        assert_array_equal(lengths, np.vectorize(len)(balls))
    r = np.array([-1.0, np.nan, np.inf, 0.0])
    assert_array_equal(tree.query_ball_point(tree.data[:4], r, return_length=True), [0, 0, 150, 1])
    with pytest.raises(ValueError, match="shape"):
        tree.query_ball_point(x, [1.0, 2.0, 3.0])


def test_a_reported_distance_is_within_itself() -> None:
    tree, x = KDTree(made(100, 3)), made(50, 3, 1)
    third, _ = tree.query(x, [3])
    assert_array_equal(tree.query_ball_point(x, third[:, 0], return_length=True), 3)
    for query, (r,) in zip(x, third):
        assert len(tree.query_ball_point(query, r)) == 3


@pytest.mark.parametrize("r", [-1.0, -np.inf, np.nan])
def test_nothing_lies_within_what_is_no_radius(r: float) -> None:
    tree = KDTree(made(5, 2))
    assert tree.query_ball_point(tree.data[0], r) == []
    assert tree.query_ball_point(tree.data, r).tolist() == [[]] * 5
    assert_array_equal(tree.query_ball_point(tree.data, r, return_length=True), 0)
    assert tree.query_ball_tree(tree, r) == [[]] * 5
    assert tree.query_pairs(r) == set()
    assert tree.query_pairs(r, output_type="ndarray").shape == (0, 2)
    assert tree.count_neighbors(tree, r) == 0
    assert tree.count_neighbors(tree, r, weights=np.ones(5)) == 0
    assert tree.sparse_distance_matrix(tree, r).nnz == 0
    assert tree.sparse_distance_matrix(tree, r, output_type="dict") == {}


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("r", [0, 0.4, np.inf])
def test_balls_of_a_tree(p: float, r: float) -> None:
    tree, theirs = both(made(80, 3))
    other, their_other = both(made(60, 3, 1))
    assert tree.query_ball_tree(other, r, p) == as_lists(theirs.query_ball_tree(their_other, r, p))
    assert tree.query_ball_tree(tree, r, p) == as_lists(theirs.query_ball_tree(theirs, r, p))


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("r", [0, 0.4, np.inf])
def test_pairs(p: float, r: float) -> None:
    points = np.concatenate([made(80, 3), made(5, 3)])  # The last five are there twice.
    tree, theirs = both(points)
    expected = theirs.query_pairs(r, p)
    pairs = tree.query_pairs(r, p)
    assert pairs == expected
    assert all(type(i) is int and type(j) is int for i, j in pairs)
    array = tree.query_pairs(r, p, output_type="ndarray")
    assert array.dtype == np.intp
    assert array.tolist() == [list(pair) for pair in sorted(expected)]
    with pytest.raises(ValueError, match="output_type"):
        tree.query_pairs(r, output_type="list")


# Counts


@pytest.mark.parametrize("p", NORMS)
def test_counts(p: float) -> None:
    tree, theirs = both(made(80, 2))
    other, their_other = both(made(60, 2, 1))
    for r in (0.5, np.inf, [0.1, 2.0, 0.5, 0.5, 0.0], [], np.linspace(0, 3, 7)):
        for a, b in ((other, their_other), (tree, theirs)):
            ours, expected = tree.count_neighbors(a, r, p), theirs.count_neighbors(b, r, p)
            assert type(ours) is type(expected)
            assert_array_equal(ours, expected)
    r = [0.0, 0.1, 0.1, 2.0, np.inf]
    assert_array_equal(
        tree.count_neighbors(other, r, p, cumulative=False),
        theirs.count_neighbors(their_other, r, p, cumulative=False),
    )


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("cumulative", [True, False])
def test_weighted_counts(p: float, cumulative: bool) -> None:
    tree, theirs = both(made(80, 2))
    other, their_other = both(made(60, 2, 1))
    rng = np.random.default_rng(2)
    ours, others = rng.normal(size=80), rng.random(60)
    for r in (0.5, [0.0, 0.1, 0.1, 2.0, np.inf], []):
        for weights in ((ours, others), (ours, None), (None, others.tolist())):
            assert_allclose(
                tree.count_neighbors(other, r, p, weights, cumulative),
                theirs.count_neighbors(their_other, r, p, weights, cumulative),
                atol=1e-10,
            )
        assert_allclose(
            tree.count_neighbors(tree, r, p, ours, cumulative),
            theirs.count_neighbors(theirs, r, p, ours, cumulative),
            atol=1e-10,
        )
    assert_array_equal(tree.count_neighbors(other, [1.0], p, (None, None)).dtype, np.intp)


def test_counts_that_are_refused() -> None:
    tree = KDTree(LINE)
    with pytest.raises(ValueError, match="one axis"):
        tree.count_neighbors(tree, [[1.0]])
    with pytest.raises(ValueError, match="decrease"):
        tree.count_neighbors(tree, [1.0, 0.5], cumulative=False)
    with pytest.raises(ValueError, match="as a tuple of two"):
        tree.count_neighbors(KDTree(LINE), 1.0, weights=[1, 2, 3])
    for weights in ([1, 2], (None, [1, 2, 3, 4]), [[1], [2], [3]]):
        with pytest.raises(ValueError, match="one weight for each of 3 points"):
            tree.count_neighbors(tree, 1.0, weights=weights)


# Matrices


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("own", [False, True])
def test_sparse_distances(p: float, own: bool) -> None:
    tree, theirs = both(made(50, 3))
    other, their_other = (tree, theirs) if own else both(made(40, 3, 1))
    expected = theirs.sparse_distance_matrix(their_other, 1.0, p)
    for output_type in ("dok_matrix", "coo_matrix", "dok_array", "coo_array"):
        matrix = tree.sparse_distance_matrix(other, 1.0, p, output_type)
        assert type(matrix).__name__ == output_type
        assert matrix.shape == expected.shape
        assert matrix.nnz == expected.nnz
        assert_allclose(matrix.toarray(), expected.toarray(), rtol=1e-13)
    entries = tree.sparse_distance_matrix(other, 1.0, p, "dict")
    assert entries == pytest.approx(dict(expected.items()), rel=1e-13)
    assert {type(v) for (i, j), value in entries.items() for v in (i, j, value)} == {int, float}
    records = tree.sparse_distance_matrix(other, 1.0, p, "ndarray")
    wanted = theirs.sparse_distance_matrix(their_other, 1.0, p, "ndarray")
    assert records.dtype == wanted.dtype
    assert {(i, j): v for i, j, v in records.tolist()} == entries
    assert type(tree.sparse_distance_matrix(other, 1.0)).__name__ == "dok_matrix"
    with pytest.raises(ValueError, match="output_type"):
        tree.sparse_distance_matrix(other, 1.0, output_type="csr_matrix")


# Types and emptiness


def test_float32_stays_float32() -> None:
    points, x = made(200, 3).astype(np.float32), made(50, 3, 1).astype(np.float32)
    tree, theirs = both(points)
    assert tree.data is points
    d, i = tree.query(x, 4)
    assert d.dtype == np.float32
    expected_d, expected_i = theirs.query(x, 4)
    assert_allclose(d, expected_d, rtol=1e-6)
    assert_array_equal(i, expected_i)
    assert tree.query_ball_point(x, np.inf).shape == (50,)
    assert tree.query_ball_point(x, 0.7).tolist() == as_lists(theirs.query_ball_point(x, 0.7))
    assert tree.query_ball_point(x, d[:, 3], return_length=True).tolist() == [4] * 50
    assert tree.count_neighbors(tree, [0.5, 1e300, np.inf]).tolist()[1:] == [40_000] * 2
    assert tree.sparse_distance_matrix(tree, 0.5, output_type="ndarray")["v"].dtype == np.float32


def test_one_float64_side_makes_it_float64() -> None:
    points, x = made(200, 3).astype(np.float32), made(50, 3, 1)
    tree, theirs = both(points)
    for queries in (x, x.tolist()):
        d, _ = tree.query(queries, 4)
        assert d.dtype == np.float64
        assert_allclose(d, theirs.query(x, 4)[0], rtol=1e-13)
    ours = tree.sparse_distance_matrix(KDTree(x), 0.5, output_type="coo_matrix")
    assert ours.dtype == np.float64
    expected = theirs.sparse_distance_matrix(spatial.KDTree(x), 0.5, output_type="coo_matrix")
    assert_allclose(ours.toarray(), expected.toarray(), rtol=1e-13)


def test_no_points() -> None:
    tree, theirs = both(np.zeros((0, 2)))
    other = KDTree(made(4, 2))
    assert_array_equal(tree.mins, theirs.mins)
    for ours, expected in zip(tree.query(other.data, 3), theirs.query(other.data, 3)):
        assert_array_equal(ours, expected)
    assert tree.query([0.0, 0.0]) == (np.inf, 0)
    assert tree.query_ball_point(other.data, 1.0).tolist() == [[]] * 4
    assert tree.query_ball_tree(other, 1.0) == []
    assert other.query_ball_tree(tree, 1.0) == [[]] * 4
    assert tree.query_pairs(1.0) == set()
    assert tree.count_neighbors(other, 1.0) == tree.count_neighbors(tree, 1.0) == 0
    assert tree.count_neighbors(other, [1.0], weights=(None, np.ones(4))).tolist() == [0.0]
    assert tree.sparse_distance_matrix(other, 1.0).shape == (0, 4)


def test_no_queries() -> None:
    tree, theirs = both(made(4, 2))
    for shape in ((0, 2), (3, 0, 2)):
        x = np.zeros(shape)
        for k in (1, 3):
            for ours, expected in zip(tree.query(x, k), theirs.query(x, k)):
                assert ours.shape == expected.shape
                assert ours.dtype == expected.dtype
        for options in ({}, {"return_length": True}):
            ours = tree.query_ball_point(x, 1.0, **options)
            expected = theirs.query_ball_point(x, 1.0, **options)
            assert ours.shape == expected.shape
            assert ours.dtype == expected.dtype


def test_distant_points_and_an_infinite_radius() -> None:
    tree, theirs = both(np.array([[0.0, 0.0], [1e150, 0.0], [-1e150, 1e150], [1e-150, 0.0]]))
    assert tree.query_pairs(np.inf) == theirs.query_pairs(np.inf)
    assert tree.count_neighbors(tree, np.inf) == 16


def test_queries_need_no_scipy() -> None:
    program = """
import sys
sys.modules["scipy"] = None
from nearjoin.spatial import KDTree
tree = KDTree([[0.0], [1.0], [5.0]])
tree.query([[0.5]]), tree.query_ball_point([[0.5]], 1.0), tree.query_pairs(1.0)
tree.count_neighbors(tree, 1.0, weights=[1, 2, 3]), tree.query_ball_tree(tree, 1.0)
tree.sparse_distance_matrix(tree, 1.0, output_type="dict")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
