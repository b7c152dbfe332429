"""Joins against all distances, computed by numpy."""

import pickle

import numpy as np
import pytest

import nearjoin

METRICS = ["l2", "l1", "linf"]
DTYPES = [np.float32, np.float64]


def lattice(dtype, side=9):
    """Points at distances that are exact in every type, with ties and duplicates."""
    axis = np.arange(side, dtype=dtype)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return np.concatenate([points, points[:5]])


def random(dtype, n, d=3, seed=0):
    return np.random.default_rng(seed).random((n, d)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
class TestWithin:
    def test_a_set_with_itself(self, dtype, metric, device, distances, rows):
        x = lattice(dtype)
        truth = distances(x, x, metric) <= 2
        np.fill_diagonal(truth, False)
        result = nearjoin.eps_join(x, 2, metric=metric, device=device, return_distance=True)
        assert rows(result) == [np.flatnonzero(row).tolist() for row in truth]
        assert len(result) == truth.sum() == nearjoin.eps_count(x, 2, metric=metric, device=device)
        degrees = nearjoin.eps_degrees(x, 2, metric=metric, device=device)
        assert degrees.dtype == np.uint64 and degrees.tolist() == truth.sum(axis=1).tolist()
        assert result.distances.dtype == dtype
        left, right, far = result.to_pairs()
        assert np.array_equal(far, distances(x, x, metric)[left, right])

    def test_two_sets(self, dtype, metric, device, distances, rows):
        x, y = random(dtype, 150), random(dtype, 220, seed=1)
        truth = distances(x, y, metric) <= dtype(0.3)
        result = nearjoin.eps_join(x, 0.3, y, metric=metric, device=device, sorted=True)
        assert [row.tolist() for row in result] == [np.flatnonzero(row).tolist() for row in truth]
        assert result.shape == (150, 220) and result.distances is None

    def test_the_nearest(self, dtype, metric, device, distances):
        x, y = lattice(dtype), lattice(dtype) + dtype(0.25)
        truth = distances(x, y, metric)
        order = np.argsort(truth, axis=1, kind="stable")[:, :6]
        far, near = nearjoin.knn_join(x, 6, y, metric=metric, device=device)
        assert far.dtype == dtype and near.dtype == np.uint32
        assert np.array_equal(near, order)
        assert np.array_equal(far, np.take_along_axis(truth, order, axis=1))

    def test_blocks_hold_the_same(self, dtype, metric, device):
        x = lattice(dtype, 30)
        whole = nearjoin.eps_join(x, 3, metric=metric, device=device, return_distance=True)
        options = dict(metric=metric, device=device, return_distance=True, batch_pairs=500)
        seen = np.zeros(len(x), int)
        for block in nearjoin.eps_batches(x, 3, sorted=True, **options):
            assert block.distances.dtype == dtype
            for at, query in enumerate(block.queries):
                span = slice(int(block.indptr[at]), int(block.indptr[at + 1]))
                assert block.indices[span].tolist() == sorted(whole[query].tolist())
                seen[query] += 1
        assert (seen == 1).all()


def test_within_means_at_most(device):
    x = [[0.0], [0.5], [np.nextafter(1.0, 2)]]
    assert nearjoin.eps_join(x, 0.5, device=device).indices.tolist() == [1, 0]
    assert nearjoin.eps_count([[1.0], [1.0], [2.0]], 0, device=device) == 2


def test_a_point_is_its_own_neighbour_only_if_asked_for(device, rows):
    x = [[0.0], [0.0], [9.0]]
    assert rows(nearjoin.eps_join(x, 1, device=device)) == [[1], [0], []]
    assert rows(nearjoin.eps_join(x, 1, device=device, include_self=True)) == [[0, 1], [0, 1], [2]]
    assert rows(nearjoin.eps_join(x, 1, x, device=device)) == [[0, 1], [0, 1], [2]]
    near = nearjoin.knn_join(x, 2, device=device, include_self=True).indices
    assert near.tolist() == [[0, 1], [0, 1], [2, 0]]


@pytest.mark.parametrize("return_distance", [False, True])
def test_each_pair_once_is_under_its_smaller_row(device, distances, rows, return_distance):
    x = random(np.float64, 300)
    options = dict(device=device, return_distance=return_distance)
    once = nearjoin.eps_join(x, 0.2, half=True, **options)
    truth = np.triu(distances(x, x, "l2") <= 0.2, 1)
    assert rows(once) == [np.flatnonzero(row).tolist() for row in truth]
    assert once.stats["pairs"] == len(once)
    assert len(once) == nearjoin.eps_count(x, 0.2, half=True, include_self=True, device=device)
    assert (once.distances is None) == (not return_distance)
    if return_distance:
        left, right, far = once.to_pairs()
        assert np.allclose(far, np.linalg.norm(x[left] - x[right], axis=1), rtol=1e-15)
    blocks = nearjoin.eps_batches(x, 0.2, half=True, device=device)
    assert sum(len(block.indices) for block in blocks) == len(once)
    alone = nearjoin.eps_join([[0.0], [9.0]], 1, half=True, **options)
    assert len(alone) == 0 and (alone.distances is None) == (not return_distance)


def test_fewer_neighbours_than_k_are_padded(device):
    x = [[0.0], [1.0], [9.0]]
    with pytest.raises(ValueError, match="pad=True"):
        nearjoin.knn_join(x, 3, device=device)
    far, near = nearjoin.knn_join(x, 3, device=device, pad=True)
    assert near[:, 2].tolist() == [nearjoin.MISSING] * 3 and np.isinf(far[:, 2]).all()
    result = nearjoin.knn_join(x, 2, device=device, max_distance=1)
    assert result.indices[:, 0].tolist() == [1, 0, nearjoin.MISSING]
    blocks = list(nearjoin.knn_batches(x, 2, device=device, max_distance=1))
    order = np.argsort(np.concatenate([block.queries for block in blocks]))
    for name in ("indices", "distances"):
        parts = np.concatenate([getattr(block, name) for block in blocks])[order]
        assert np.array_equal(parts, getattr(result, name))


def test_many_neighbours_of_no_points_take_no_memory(device):
    none = np.empty((0, 2))
    far, near = nearjoin.knn_join(none, 2**31, device=device, pad=True, memory_limit=10**7)
    assert far.shape == near.shape == (0, 2**31)


def test_blocks_are_cut_by_their_padding(device):
    x = random(np.float64, 5000, 2)
    blocks = list(nearjoin.knn_batches(x, 100, device=device, max_distance=1e-3, batch_pairs=5000))
    assert max(block.indices.size for block in blocks) <= 5000
    assert sorted(np.concatenate([block.queries for block in blocks])) == list(range(5000))


def test_half_stays_within_the_memory_limit():
    x = random(np.float64, 20_000, 2)
    whole = nearjoin.eps_join(x, 0.05, device="cpu")
    limit = whole.indices.nbytes + whole.stats["bytes"]["index"] + 1_000_000
    nearjoin.eps_join(x, 0.05, device="cpu", memory_limit=limit)
    with pytest.raises(MemoryError, match="eps_batches"):
        nearjoin.eps_join(x, 0.05, device="cpu", memory_limit=limit, half=True)


@pytest.mark.parametrize("n, m", [(0, 0), (0, 5), (5, 0), (1, 1)])
def test_no_points_have_no_neighbours(device, n, m):
    x, y = np.zeros((n, 2)), np.zeros((m, 2))
    result = nearjoin.eps_join(x, 1, y, device=device, return_distance=True)
    assert len(result) == n * m and len(result.indptr) == n + 1
    assert nearjoin.eps_count(x, 1, y, device=device) == n * m
    assert len(list(result)) == n
    far, near = nearjoin.knn_join(x, 2, y, device=device, pad=True)
    assert near.shape == far.shape == (n, 2)
    assert nearjoin.dbscan(x, 1, 1, device=device).tolist() == [0] * n
    assert sum(len(block.queries) for block in nearjoin.eps_batches(x, 1, y, device=device)) == n


def test_arrays_are_the_engines_own_and_writable(device):
    result = nearjoin.eps_join(random(np.float32, 3000), 0.2, device=device, return_distance=True)
    nearest = nearjoin.knn_join(random(np.float32, 3000), 8, device=device)
    for array in (result.indptr, result.indices, result.distances, *nearest):
        assert array.flags.writeable and array.flags.c_contiguous and array.base is not None
        array[:] = 1


def test_results_tell_of_themselves(device):
    x = random(np.float64, 500)
    result = nearjoin.eps_join(x, 0.1, device=device, return_distance=True)
    assert repr(result) == f"<EpsResult: {len(result)} pairs of 500 × 500 points, with distances>"
    assert result.stats["pairs"] == len(result)
    assert result.stats["points"] == {"left": 500, "right": 500}
    assert result.stats["strategy"] == result.plan.strategy != "auto"
    assert result.stats["device"] == result.plan.device != "auto"
    assert str(result.plan).startswith("ε = 0.1") and result.plan.text not in repr(result.plan)
    assert result[-1].tolist() == result[499].tolist()
    with pytest.raises(IndexError, match="there are 500"):
        result[500]
    with pytest.raises(TypeError):
        result[1:3]
    nearest = nearjoin.knn_join(x, 3, device=device)
    assert repr(nearest) == "<KnnResult: 3 nearest of 500 × 500 points>"
    again = pickle.loads(pickle.dumps(nearest))
    assert np.array_equal(again.indices, nearest.indices) and again.stats == nearest.stats
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert len(pickle.loads(pickle.dumps(result, protocol))) == len(result)


@pytest.mark.parametrize("strategy", ["brute", "directory", "grid", "ego", "product"])
def test_every_strategy_gives_the_same(strategy, rows):
    x = random(np.float32, 700)
    expected = rows(nearjoin.eps_join(x, 0.1, device="cpu"))
    result = nearjoin.eps_join(x, 0.1, device="cpu", strategy=strategy, threads=3)
    assert rows(result) == expected and result.plan.strategy == strategy


def test_plans_are_made_without_running(device):
    x = random(np.float64, 1000)
    plan = nearjoin.plan(x, eps=0.1, device=device)
    assert plan.estimated_pairs > 0 and plan.memory_limit > 0
    assert str(nearjoin.plan(x, k=5, device=device)).startswith("k = 5")
    for wrong in ({}, {"eps": 1, "k": 1}):
        with pytest.raises(TypeError, match="either eps or k"):
            nearjoin.plan(x, **wrong)


def test_an_eps_is_estimated():
    x = random(np.float64, 20_000, 2)
    eps = nearjoin.estimate_eps(x, neighbors=32)
    assert 16 < nearjoin.eps_degrees(x, eps).mean() < 64
    with pytest.raises(ValueError, match="only 3 points"):
        nearjoin.estimate_eps(x[:3], neighbors=32)
    with pytest.raises(ValueError, match="more than 0"):
        nearjoin.estimate_eps(x, neighbors=0)


def test_info_says_what_there_is(device):
    info = nearjoin.info()
    assert info["threads"] >= 1 and info["simd"] in info["simd_available"]
    assert (info["gpu"] is None) == (info["why_no_gpu"] is not None)
    if device == "gpu":
        assert info["gpu"]["memory"] > 0


class TestOtherLibraries:
    @pytest.mark.parametrize("points", [random(np.float64, 400), lattice(np.float64)])
    def test_scipy_has_the_same_matrix(self, device, points):
        spatial = pytest.importorskip("scipy.spatial")
        tree = spatial.KDTree(points)
        # Zeros are duplicates, which a dictionary keeps.
        truth = tree.sparse_distance_matrix(tree, 0.3, output_type="dict")
        truth = {pair: far for pair, far in truth.items() if pair[0] != pair[1]}
        result = nearjoin.eps_join(points, 0.3, device=device, return_distance=True)
        coo = result.to_scipy().tocoo()
        ours = dict(zip(zip(coo.row.tolist(), coo.col.tolist()), coo.data.tolist()))
        assert ours.keys() == truth.keys()
        assert all(abs(ours[pair] - far) <= 1e-15 for pair, far in truth.items())
        pattern = nearjoin.eps_join(points, 0.3, device=device).to_scipy()
        assert pattern.dtype == bool and pattern.nnz == len(truth)

    def test_scipy_has_the_same_nearest(self, device):
        spatial = pytest.importorskip("scipy.spatial")
        x, y = random(np.float64, 300), random(np.float64, 500, seed=3)
        truth, _ = spatial.KDTree(y).query(x, 7)
        result = nearjoin.knn_join(x, 7, y, device=device)
        assert np.allclose(result.distances, truth, rtol=1e-15, atol=0)
        assert result.to_scipy().nnz == 2100

    def test_scipy_shares_the_memory(self):
        pytest.importorskip("scipy")
        result = nearjoin.eps_join(random(np.float64, 400), 0.3, return_distance=True)
        matrix = result.to_scipy()
        assert np.shares_memory(matrix.indices, result.indices)
        assert np.shares_memory(matrix.data, result.distances)

    def test_padding_is_left_out(self):
        pytest.importorskip("scipy")
        result = nearjoin.knn_join([[0.0], [1.0], [9.0]], 2, max_distance=2)
        assert result.to_scipy().toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]

    def test_arrow_has_pairs(self):
        pytest.importorskip("pyarrow")
        result = nearjoin.eps_join([[0.0], [1.0], [1.5]], 1, sorted=True, return_distance=True)
        table = result.to_arrow()
        assert table.column_names == ["left", "right", "distance"]
        assert table["left"].to_pylist() == [0, 1, 1, 2]
        assert table["right"].to_pylist() == [1, 0, 2, 1]
        assert table["distance"].to_pylist() == [1.0, 1.0, 0.5, 0.5]
        nearest = nearjoin.knn_join([[0.0], [1.0], [9.0]], 2, max_distance=2).to_arrow()
        assert nearest.to_pydict() == {"left": [0, 1], "right": [1, 0], "distance": [1.0, 1.0]}
