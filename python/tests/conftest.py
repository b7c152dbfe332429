"""What the tests share: a device, points, and the truth by brute force."""

import os

import numpy as np
import pytest


@pytest.fixture
def device():
    """Where joins run: NEARJOIN_TEST_DEVICE, for a machine that has a GPU."""
    return os.environ.get("NEARJOIN_TEST_DEVICE", "auto")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def _distances(x, y, metric):
    gaps = np.abs(x[:, None, :] - y[None, :, :])
    if metric == "l1":
        return gaps.sum(axis=2, dtype=x.dtype)
    if metric == "linf":
        return gaps.max(axis=2, initial=0)
    return np.sqrt((gaps * gaps).sum(axis=2, dtype=x.dtype))


@pytest.fixture
def distances():
    """All distances between two sets, by the metric."""
    return _distances


@pytest.fixture
def rows():
    """An answer as a list of lists of indices, ascending."""
    return lambda result: [sorted(row.tolist()) for row in result]
