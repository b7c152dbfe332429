"""Clusters, against a plain search through the graph of neighbours."""

import numpy as np
import pytest

import nearjoin


def blobs(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.random((6, 2))
    points = centers[rng.integers(0, 6, n)] + rng.normal(0, 0.02, (n, 2))
    points[: n // 10] = rng.random((n // 10, 2))
    return points.astype(dtype)


def plain(near, least):
    """Labels by definition: `near` says which points are within ε of each other."""
    core = near.sum(axis=1) >= least
    labels = np.full(len(near), -1)
    groups = 0
    for seed in np.flatnonzero(core):
        if labels[seed] >= 0:
            continue
        labels[seed] = groups
        left = [seed]
        while left:
            for point in np.flatnonzero(near[left.pop()] & core & (labels < 0)):
                labels[point] = groups
                left.append(point)
        groups += 1
    for point in np.flatnonzero(~core):
        cores = np.flatnonzero(near[point] & core)
        if len(cores):
            labels[point] = labels[cores[0]]
    return labels, core


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["l2", "l1", "linf"])
@pytest.mark.parametrize("least", [1, 2, 5, 40, 1000])
def test_labels_are_those_of_the_definition(dtype, metric, least, device, distances):
    x = blobs(400, dtype)
    labels, core = plain(distances(x, x, metric) <= dtype(0.03), least)
    ours = nearjoin.dbscan(x, 0.03, least, metric=metric, device=device, return_core=True)
    assert ours[0].dtype == np.int64 and np.array_equal(ours[0], labels)
    assert ours[1].dtype == bool and np.array_equal(ours[1], core)
    if least == 1:
        assert np.array_equal(nearjoin.components(x, 0.03, metric=metric, device=device), labels)


def test_scikit_learn_has_the_same_clusters(device):
    cluster = pytest.importorskip("sklearn.cluster")
    x = blobs(5000, np.float64, 4)
    theirs = cluster.DBSCAN(eps=0.01, min_samples=8).fit(x)
    labels, core = nearjoin.dbscan(x, 0.01, 8, device=device, return_core=True)
    assert np.array_equal(np.flatnonzero(core), theirs.core_sample_indices_)
    assert np.array_equal(labels == -1, theirs.labels_ == -1)
    pairs = set(zip(labels[core].tolist(), theirs.labels_[core].tolist()))
    assert len(pairs) == labels.max() + 1 == theirs.labels_.max() + 1


def test_more_threads_change_nothing():
    x = blobs(20_000, np.float64, 2)
    one = nearjoin.dbscan(x, 0.005, 6, device="cpu", threads=1)
    many = nearjoin.dbscan(x, 0.005, 6, device="cpu", threads=7)
    assert np.array_equal(one, many)
