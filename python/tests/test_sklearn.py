"""The estimators of nearjoin.sklearn give what those of scikit-learn document."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

import sklearn.cluster
import sklearn.neighbors
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import nearjoin
from nearjoin.sklearn import (
    DBSCAN,
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsTransformer,
    _graph,
)

ESTIMATORS = [DBSCAN, KNeighborsTransformer, NearestNeighbors, RadiusNeighborsTransformer]
DTYPES = [np.float32, np.float64]
ORDERS = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_metric = pytest.mark.parametrize("metric", ORDERS)
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def uniform(n=200, features=3, seed=0):
    return np.random.default_rng(seed).random((n, features))


def lattice():
    """Points at whole numbers: many distances are equal, and all are exact."""
    return np.array([[i, j] for i in range(8) for j in range(6)], dtype=float)


def duplicates():
    """Each place is taken by several points, which stand in no order."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 3, (40, 2)).astype(float)


DATA = [uniform(), lattice(), duplicates(), uniform(50, 1)]
each_data = pytest.mark.parametrize("data", DATA, ids=["uniform", "lattice", "duplicates", "line"])


def all_distances(queries, points, ord=2):
    gaps = np.asarray(queries, float)[:, None] - np.asarray(points, float)[None]
    return np.linalg.norm(gaps, ord=ord, axis=-1)


def same_rows(found, expected):
    """Whether object arrays hold the same indices in each row, in any order."""
    return [sorted(row) for row in found] == [sorted(row) for row in expected]


# All conventions of scikit-learn at once: cloning, pickling, names of features, kinds of input, …


@parametrize_with_checks([estimator() for estimator in ESTIMATORS])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (NearestNeighbors, sklearn.neighbors.NearestNeighbors),
        (KNeighborsTransformer, sklearn.neighbors.KNeighborsTransformer),
        (RadiusNeighborsTransformer, sklearn.neighbors.RadiusNeighborsTransformer),
        (DBSCAN, sklearn.cluster.DBSCAN),
    ],
)
def test_parameters_and_their_defaults_are_those_of_scikit_learn(ours, theirs):
    assert ours().get_params() == {**theirs().get_params(), "device": "auto"}


@each_estimator
@pytest.mark.parametrize(
    "alias, metric",
    [
        ({"metric": "l2"}, "euclidean"),
        ({"metric": "minkowski", "p": 2}, "euclidean"),
        ({"metric": "minkowski", "p": None}, "euclidean"),
        ({"metric": "l1"}, "manhattan"),
        ({"metric": "cityblock"}, "manhattan"),
        ({"metric": "minkowski", "p": 1.0}, "manhattan"),
        ({"metric": "linf"}, "chebyshev"),
        ({"metric": "minkowski", "p": np.inf}, "chebyshev"),
    ],
)
def test_names_of_metrics(estimator, alias, metric):
    data = uniform(60)
    aliased, plain = estimator(**alias).fit(data), estimator(metric=metric, p=7).fit(data)
    assert plain.metric == metric
    if estimator is DBSCAN:
        np.testing.assert_array_equal(aliased.labels_, plain.labels_)
        return
    assert plain.effective_metric_ == metric and plain.effective_metric_params_ == {}
    assert aliased.effective_metric_ in (metric, alias["metric"])
    graph = "kneighbors_graph" if hasattr(plain, "kneighbors_graph") else "radius_neighbors_graph"
    found, expected = (getattr(e, graph)(mode="distance").toarray() for e in (aliased, plain))
    np.testing.assert_array_equal(found, expected)


# The nearest


@each_data
@each_dtype
@each_metric
def test_kneighbors(data, dtype, metric):
    data = data.astype(dtype)
    queries = data[::3] + dtype(0.25)
    ours = NearestNeighbors(n_neighbors=6, metric=metric).fit(data)
    theirs = sklearn.neighbors.NearestNeighbors(n_neighbors=6, metric=metric).fit(data)
    for X in (None, data, queries):
        distances, indices = ours.kneighbors(X)
        assert distances.dtype == dtype and indices.dtype == np.intp
        expected, _ = theirs.kneighbors(X)
        np.testing.assert_allclose(distances, expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(ours.kneighbors(X, return_distance=False), indices)
        if X is None:
            assert not (indices == np.arange(len(data))[:, None]).any()


@pytest.mark.parametrize("data", [lattice(), duplicates()])
@each_dtype
def test_ties_go_to_the_smaller_index(data, dtype):
    nearest = NearestNeighbors(n_neighbors=7).fit(data.astype(dtype))
    distances = all_distances(data, data)
    order = np.argsort(distances, axis=1, kind="stable")
    np.testing.assert_array_equal(nearest.kneighbors(data, return_distance=False), order[:, :7])
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")
    np.testing.assert_array_equal(nearest.kneighbors(return_distance=False), order[:, :7])


def test_self_is_left_out_by_index_and_not_by_distance():
    distances, indices = NearestNeighbors(n_neighbors=1).fit(np.ones((3, 1))).kneighbors()
    assert indices.tolist() == [[1], [0], [0]]
    assert distances.tolist() == [[0], [0], [0]]


@each_data
def test_kneighbors_graph(data):
    ours = NearestNeighbors(n_neighbors=4).fit(data)
    for X in (None, data[:5] + 0.1):
        distances, indices = ours.kneighbors(X)
        rows = np.repeat(np.arange(len(indices)), 4)
        for mode, values in (("connectivity", np.ones(indices.size)), ("distance", distances)):
            graph = ours.kneighbors_graph(X, mode=mode)
            assert sparse.issparse(graph) and graph.format == "csr"
            assert graph.nnz == indices.size and graph.shape == (len(indices), len(data))
            expected = np.zeros(graph.shape)
            expected[rows, indices.ravel()] = np.ravel(values)
            np.testing.assert_array_equal(graph.toarray(), expected)
    assert ours.kneighbors_graph(n_neighbors=2).nnz == 2 * len(data)


# Within a radius


@each_data
@each_dtype
@each_metric
@pytest.mark.parametrize("radius", [0.0, 0.3, 2.0])
def test_radius_neighbors(data, dtype, metric, radius):
    data = data.astype(dtype)
    ours = NearestNeighbors(radius=radius, metric=metric).fit(data)
    theirs = sklearn.neighbors.NearestNeighbors(radius=radius, metric=metric).fit(data)
    for X in (None, data, data[::3] + dtype(0.25)):
        distances, indices = ours.radius_neighbors(X)
        assert indices.dtype == object and indices.shape == distances.shape
        assert all(row.dtype == np.intp for row in indices)
        assert all(row.dtype == dtype for row in distances)
        expected, rows = theirs.radius_neighbors(X)
        assert same_rows(indices, rows)
        assert same_rows(ours.radius_neighbors(X, return_distance=False), rows)
        for found, wanted in zip(distances, expected):
            np.testing.assert_allclose(np.sort(found), np.sort(wanted), rtol=1e-5, atol=1e-6)


def test_radius_is_inclusive_and_may_be_infinite():
    nearest = NearestNeighbors(radius=1.5).fit([[1.5], [3.0], [3.01]])
    (row,) = nearest.radius_neighbors([[0.0]], radius=3.0, return_distance=False)
    assert row.tolist() == [0, 1]
    (row,) = nearest.radius_neighbors([[0.0]], return_distance=False)
    assert row.tolist() == [0]
    for dtype in DTYPES:
        far = np.array([[-1e30, 0.0], [0.0, 3.0], [1e30, 1.0]], dtype=dtype)
        everything = NearestNeighbors(radius=np.inf).fit(far).radius_neighbors_graph()
        np.testing.assert_array_equal(everything.toarray(), 1 - np.eye(3))


@pytest.mark.parametrize("chunk", [1, 16, 1 << 20])
def test_radius_neighbors_sorted(monkeypatch, chunk):
    monkeypatch.setattr(_graph, "CHUNK", chunk)
    data = lattice()
    nearest = NearestNeighbors(radius=2.0).fit(data)
    distances, indices = nearest.radius_neighbors(sort_results=True)
    for own, (row, values) in enumerate(zip(indices, distances)):
        within = all_distances(data[own : own + 1], data)[0]
        expected = np.argsort(within, kind="stable")
        expected = expected[(within[expected] <= 2.0) & (expected != own)]
        np.testing.assert_array_equal(row, expected)
        np.testing.assert_array_equal(values, within[row])
    graph = nearest.radius_neighbors_graph(mode="distance", sort_results=True)
    np.testing.assert_array_equal(graph.indices, np.concatenate(list(indices)))
    with pytest.raises(ValueError, match="return_distance"):
        nearest.radius_neighbors(return_distance=False, sort_results=True)


@each_data
def test_radius_neighbors_graph(data):
    ours = NearestNeighbors(radius=1.0).fit(data)
    theirs = sklearn.neighbors.NearestNeighbors(radius=1.0).fit(data)
    for X in (None, data[:5] + 0.1, data[:2] + 100):
        for mode in ("connectivity", "distance"):
            found = ours.radius_neighbors_graph(X, mode=mode)
            expected = theirs.radius_neighbors_graph(X, mode=mode)
            assert found.format == "csr" and found.nnz == expected.nnz
            np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-12)
    assert ours.radius_neighbors_graph(data, radius=0.0).nnz >= len(data)


# Transformers


@each_data
@each_dtype
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize(
    "make", [KNeighborsTransformer, functools.partial(RadiusNeighborsTransformer, radius=1.0)]
)
def test_each_row_of_fit_transform_begins_with_the_point_itself(data, dtype, mode, make):
    graph = make(mode=mode).fit_transform(data.astype(dtype))
    n = len(data)
    assert graph.format == "csr" and graph.shape == (n, n)
    assert graph.dtype == (dtype if mode == "distance" else np.float64)
    own = np.repeat(np.arange(n), np.diff(graph.indptr)) == graph.indices
    assert own.sum() == n
    if mode == "distance":
        np.testing.assert_array_equal(graph.indices[graph.indptr[:-1]], np.arange(n))
        for row in np.split(graph.data, graph.indptr[1:-1]):
            assert row[0] == 0 and (np.diff(row) >= 0).all()
    else:
        assert (graph.data == 1).all()


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("name", ["KNeighborsTransformer", "RadiusNeighborsTransformer"])
def test_transformers(name, mode):
    train, test = uniform(), uniform(30, seed=2)
    options = {"radius": 0.3} if "Radius" in name else {"n_neighbors": 4}
    ours = {c.__name__: c for c in ESTIMATORS}[name](mode=mode, **options)
    theirs = getattr(sklearn.neighbors, name)(mode=mode, **options)
    for found, expected in (
        (ours.fit_transform(train), theirs.fit_transform(train)),
        (ours.transform(train), theirs.transform(train)),
        (ours.transform(test), theirs.transform(test)),
    ):
        assert found.nnz == expected.nnz
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-12)
    names = ours.get_feature_names_out()
    np.testing.assert_array_equal(names, theirs.get_feature_names_out())
    assert ours.set_output(transform="default") is ours


def test_a_row_may_hold_the_point_alone():
    graph = KNeighborsTransformer(n_neighbors=1, mode="connectivity").fit_transform(np.ones((3, 1)))
    np.testing.assert_array_equal(graph.toarray(), np.eye(3))


def test_sparse_arrays_where_scikit_learn_is_set_to_them():
    if "sparse_interface" not in sklearn.get_config():
        pytest.skip("scikit-learn has no such setting")
    with sklearn.config_context(sparse_interface="sparray"):
        assert isinstance(KNeighborsTransformer().fit_transform(uniform()), sparse.csr_array)
    assert isinstance(KNeighborsTransformer().fit_transform(uniform()), sparse.csr_matrix)


# DBSCAN


def same_clusters(data, found, expected, eps, ord=2):
    """Cores and noise are the same; a point beside cores is in the cluster of one of them."""
    np.testing.assert_array_equal(found.core_sample_indices_, expected.core_sample_indices_)
    np.testing.assert_allclose(found.components_, expected.components_)
    cores = found.core_sample_indices_
    np.testing.assert_array_equal(found.labels_[cores], expected.labels_[cores])
    np.testing.assert_array_equal(found.labels_ == -1, expected.labels_ == -1)
    near = all_distances(data, data[cores], ord) <= eps * (1 + 1e-6)
    for label, beside in zip(found.labels_, near):
        assert label == -1 or label in found.labels_[cores][beside]


@each_data
@each_dtype
@each_metric
@pytest.mark.parametrize("eps, min_samples", [(0.1, 1), (0.15, 4), (1.0, 3), (1.0, 5), (0.01, 9)])
def test_dbscan(data, dtype, metric, eps, min_samples):
    data = data.astype(dtype)
    found = DBSCAN(eps, min_samples=min_samples, metric=metric).fit(data)
    expected = sklearn.cluster.DBSCAN(eps, min_samples=min_samples, metric=metric).fit(data)
    assert found.labels_.dtype == np.int64 and found.components_.dtype == dtype
    same_clusters(data, found, expected, eps, ORDERS[metric])
    predicted = DBSCAN(eps, min_samples=min_samples, metric=metric).fit_predict(data)
    np.testing.assert_array_equal(predicted, found.labels_)


@pytest.fixture(params=[10, 1_000_000])
def small_batches(monkeypatch, request):
    batches = functools.partial(nearjoin.eps_batches, batch_pairs=request.param)
    monkeypatch.setattr(nearjoin, "eps_batches", batches)


@pytest.mark.usefixtures("small_batches")
@each_data
@each_dtype
@pytest.mark.parametrize("eps, min_samples", [(0.1, 1), (0.15, 4), (1.0, 4), (0.01, 99)])
def test_dbscan_with_weights_of_one_is_dbscan(data, dtype, eps, min_samples):
    data = data.astype(dtype)
    plain = DBSCAN(eps, min_samples=min_samples).fit(data)
    for weights in (np.ones(len(data)), [1] * len(data), 1):
        weighted = DBSCAN(eps, min_samples=min_samples).fit(data, sample_weight=weights)
        np.testing.assert_array_equal(weighted.labels_, plain.labels_)
        np.testing.assert_array_equal(weighted.core_sample_indices_, plain.core_sample_indices_)
        np.testing.assert_array_equal(weighted.components_, plain.components_)
        assert weighted.labels_.dtype == plain.labels_.dtype


@pytest.mark.usefixtures("small_batches")
@each_data
def test_dbscan_with_weights(data):
    weights = np.random.default_rng(3).integers(-1, 4, len(data))
    for eps, min_samples in ((0.15, 4), (1.0, 8)):
        found = DBSCAN(eps, min_samples=min_samples).fit(data, sample_weight=weights)
        expected = sklearn.cluster.DBSCAN(eps, min_samples=min_samples)
        same_clusters(data, found, expected.fit(data, sample_weight=weights), eps)


def test_a_weight_stands_for_so_many_points():
    data, times = lattice(), np.random.default_rng(4).integers(1, 4, 48)
    found = DBSCAN(1.0, min_samples=10).fit(data, sample_weight=times)
    repeated = DBSCAN(1.0, min_samples=10).fit(np.repeat(data, times, axis=0))
    np.testing.assert_array_equal(np.repeat(found.labels_, times), repeated.labels_)


def test_weights_are_summed_without_loss():
    # Ten times 0.1 in float64, added one by one, is less than 1.
    found = DBSCAN(1.0, min_samples=1).fit(np.zeros((10, 1)), sample_weight=np.full(10, 0.1))
    assert len(found.core_sample_indices_) == 10


def test_dbscan_without_cores():
    found = DBSCAN(0.1, min_samples=3).fit(lattice())
    assert (found.labels_ == -1).all()
    assert found.core_sample_indices_.shape == (0,) and found.components_.shape == (0, 2)


# In larger things


def test_a_search_over_a_pipeline():
    X = uniform(120, 2)
    y = (X[:, 0] > X[:, 1]).astype(int)
    grid = {"transformer__n_neighbors": [12, 20], "classifier__n_neighbors": [1, 3, 9]}
    scores = []
    for transformer in (KNeighborsTransformer(), sklearn.neighbors.KNeighborsTransformer()):
        steps = [
            ("scaler", StandardScaler()),
            ("transformer", transformer),
            ("classifier", KNeighborsClassifier(metric="precomputed")),
        ]
        search = GridSearchCV(Pipeline(steps), grid, cv=3).fit(X, y)
        scores.append(search.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(*scores)


def test_graphs_feed_the_dbscan_of_scikit_learn():
    X = uniform()
    graph = RadiusNeighborsTransformer(radius=0.2)
    clusters = sklearn.cluster.DBSCAN(0.15, metric="precomputed")
    chained = make_pipeline(graph, clusters).fit_predict(X)
    np.testing.assert_array_equal(chained, sklearn.cluster.DBSCAN(0.15).fit_predict(X))
    ours = make_pipeline(StandardScaler(), DBSCAN(0.5)).fit_predict(X)
    theirs = make_pipeline(StandardScaler(), sklearn.cluster.DBSCAN(0.5)).fit_predict(X)
    np.testing.assert_array_equal(ours == -1, theirs == -1)


@each_estimator
def test_clone_and_pickle(estimator):
    data = uniform()
    fitted = estimator(metric="manhattan", device="cpu").fit(data)
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    if estimator is DBSCAN:
        np.testing.assert_array_equal(again.labels_, fitted.labels_)
    elif hasattr(fitted, "kneighbors"):
        for found, expected in zip(again.kneighbors(), fitted.kneighbors()):
            np.testing.assert_array_equal(found, expected)
    else:
        difference = again.transform(data) - fitted.transform(data)
        assert abs(difference).max() == 0


@each_estimator
def test_data_frames(estimator):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(uniform(20, 2), columns=["x", "y"])
    fitted = estimator().fit(frame)
    assert fitted.feature_names_in_.tolist() == ["x", "y"] and fitted.n_features_in_ == 2
    if estimator is not DBSCAN:
        assert fitted.n_samples_fit_ == 20
        ask = getattr(fitted, "kneighbors", None) or fitted.radius_neighbors
        with pytest.raises(ValueError, match="feature names"):
            ask(frame[["y", "x"]])


# Input


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        np.asfortranarray,
        lambda x: x.astype(np.int32),
        lambda x: x.astype(np.uint8),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(">f8"),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.broadcast_to(x, x.shape),
    ],
    ids=["list", "columns", "int32", "uint8", "float16", "big-endian", "strided", "read-only"],
)
def test_kinds_of_arrays(convert):
    expected = NearestNeighbors().fit(lattice()).kneighbors()
    for found in (
        NearestNeighbors().fit(convert(lattice())).kneighbors(),
        NearestNeighbors(n_neighbors=6).fit(lattice()).kneighbors(convert(lattice())),
    ):
        assert found[0].dtype == np.float64
        start = found[0].shape[1] - 5
        np.testing.assert_array_equal(found[0][:, start:], expected[0])


def test_queries_and_points_of_two_types():
    data, queries = uniform().astype(np.float32), uniform(seed=5)
    for points, asked in ((data, queries), (queries, data)):
        distances, _ = NearestNeighbors().fit(points).kneighbors(asked)
        assert distances.dtype == np.float64
        expected = np.sort(all_distances(asked, points), axis=1)[:, :5]
        np.testing.assert_allclose(distances, expected, rtol=1e-12)


@pytest.mark.parametrize("n_jobs, threads", [(None, None), (-1, None), (1, 1), (3, 3)])
def test_jobs_are_threads(monkeypatch, n_jobs, threads):
    told = []
    join = nearjoin.knn_join

    def listen(*arguments, **options):
        told.append(options)
        return join(*arguments, **options)

    monkeypatch.setattr(nearjoin, "knn_join", listen)
    NearestNeighbors(n_jobs=n_jobs, device="cpu").fit(uniform()).kneighbors()
    assert [(o["threads"], o["device"]) for o in told] == [(threads, "cpu")]
    NearestNeighbors(n_jobs=-2).fit(uniform()).kneighbors()
    assert told[-1]["threads"] >= 1


# Errors


@each_estimator
@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"metric": "cosine"}, "'cosine'.*'euclidean'.*'minkowski'"),
        ({"metric": max}, "metric="),
        ({"metric": "precomputed"}, "precomputed.*points"),
        ({"metric": "minkowski", "p": 3}, "p=3.*1, 2 or infinity"),
        ({"metric_params": {"w": [1]}}, "metric_params"),
        ({"algorithm": "octree"}, "'octree'.*'auto'"),
        ({"leaf_size": 0}, "leaf_size"),
        ({"device": "abacus"}, "'abacus'.*'auto'"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_that_cannot_be_used(estimator, parameters, message):
    with pytest.raises(ValueError, match=message):
        estimator(**parameters).fit(lattice())


@pytest.mark.parametrize(
    "estimator, error",
    [
        (NearestNeighbors(n_neighbors=0), ValueError),
        (NearestNeighbors(n_neighbors=1.5), TypeError),
        (NearestNeighbors(radius=-1.0), ValueError),
        (NearestNeighbors(radius=np.nan), ValueError),
        (NearestNeighbors(radius="wide"), TypeError),
        (NearestNeighbors(n_jobs=1.5), TypeError),
        (KNeighborsTransformer(mode="far"), ValueError),
        (RadiusNeighborsTransformer(mode=None), ValueError),
        (DBSCAN(0.0), ValueError),
        (DBSCAN(np.inf), ValueError),
        (DBSCAN(None), TypeError),
        (DBSCAN(min_samples=0), ValueError),
        (DBSCAN(min_samples=2.5), TypeError),
    ],
)
def test_values_that_cannot_be_used(estimator, error):
    with pytest.raises(error):
        estimator.fit(lattice())


@each_estimator
def test_points_that_cannot_be_used(estimator):
    for container in (sparse.csr_matrix, sparse.csr_array):
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            estimator().fit(container(lattice()))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="X contains"):
            estimator().fit(np.full((9, 2), value))


def test_questions_that_have_no_answer():
    nearest = NearestNeighbors()
    for ask in (nearest.kneighbors, nearest.radius_neighbors):
        with pytest.raises(NotFittedError):
            ask()
    nearest.fit(lattice()[:5])
    with pytest.raises(ValueError, match=r"n_neighbors < n_samples_fit.* = 5.* = 5"):
        nearest.kneighbors()
    with pytest.raises(ValueError, match=r"n_neighbors <= n_samples_fit.* = 6.* = 5.* = 1"):
        nearest.kneighbors([[0, 0]], n_neighbors=6)
    assert nearest.kneighbors([[0, 0]])[1].shape == (1, 5)
    with pytest.raises(ValueError, match="n_neighbors > 0"):
        nearest.kneighbors(n_neighbors=0)
    with pytest.raises(TypeError, match="n_neighbors"):
        nearest.kneighbors(n_neighbors=1.5)
    with pytest.raises(TypeError, match="radius"):
        nearest.radius_neighbors(radius=np.ones(5))
    with pytest.raises(ValueError, match="radius"):
        nearest.radius_neighbors(radius=-1)
    for graph in (nearest.kneighbors_graph, nearest.radius_neighbors_graph):
        with pytest.raises(ValueError, match="mode='far'"):
            graph([[0, 0]], mode="far")
    with pytest.raises(ValueError, match="features"):
        nearest.kneighbors([[0, 0, 0]])
    with pytest.raises(ValueError, match=r"n_neighbors = 6, n_samples_fit = 5"):
        KNeighborsTransformer().fit_transform(lattice()[:5])


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.ones(3), "inconsistent"),
        (np.ones((48, 1)), "1D"),
        (np.full(48, np.nan), "NaN"),
        (np.zeros(48), "zero"),
    ],
)
def test_weights_that_cannot_be_used(weights, message):
    with pytest.raises(ValueError, match=message):
        DBSCAN().fit(lattice(), sample_weight=weights)
