"""DBSCAN, with or without weights, in memory that does not grow with the neighbours."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils import check_array, check_consistent_length, check_scalar

import nearjoin

from ._base import Floats, JoinEstimator, check_radius


class DBSCAN(ClusterMixin, JoinEstimator):  # type: ignore[misc]
    """Clusters of points that have many neighbours within a distance.

    A point with at least `min_samples` points within `eps`, itself included, is a core.
    Cores within `eps` of each other are in one cluster. Any other point is in the cluster
    of the first core within `eps` of it, by the order of the rows, or is noise.

    Neighbourhoods are not kept, so memory grows with the points and not with their
    neighbours.

    Parameters
    ----------
    eps : float, default=0.5
        The distance within which points are neighbours. It is no limit to the size of a
        cluster.
    min_samples : int, default=5
        How many points, or how much weight, a core has within `eps`, itself included.
    metric : str, default='euclidean'
        'euclidean' or 'l2', 'manhattan', 'cityblock' or 'l1', 'chebyshev' or 'linf', or
        'minkowski' with its `p`.
    metric_params : None
        Has to be None.
    algorithm : {'auto', 'ball_tree', 'kd_tree', 'brute'}, default='auto'
        Has no effect.
    leaf_size : int, default=30
        Has no effect.
    p : float, default=None
        1, 2 or infinity, for the metric 'minkowski'. None stands for 2.
    n_jobs : int, default=None
        How many threads to use. None and -1 stand for all cores.
    device : {'auto', 'cpu', 'gpu', 'hybrid'}, default='auto'
        Where the work is done; 'hybrid' is on both.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The cluster of each point, or -1 for noise. Clusters are numbered from 0 in the
        order of their first cores.
    core_sample_indices_ : ndarray of shape (n_core_samples,)
        The rows of the cores.
    components_ : ndarray of shape (n_core_samples, n_features)
        The cores.
    n_features_in_ : int
        How many coordinates the points have.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, if all of them are strings.

    See Also
    --------
    nearjoin.dbscan : The function behind it.

    Notes
    -----
    Cores have the same labels as in scikit-learn. A point that is no core, and has cores
    of several clusters within `eps`, may be in another of these.

    Examples
    --------
    >>> from nearjoin.sklearn import DBSCAN
    >>> points = [[0.0], [0.5], [1.0], [5.0], [9.0], [9.5]]
    >>> DBSCAN(eps=0.5, min_samples=2).fit_predict(points)
    array([ 0,  0,  0, -1,  1,  1])

    A weight stands for that many points at one place:

    >>> DBSCAN(eps=0.5, min_samples=2).fit_predict(points, sample_weight=[1, 1, 1, 2, 1, 0])
    array([ 0,  0,  0,  1, -1, -1])
    """

    def __init__(
        self,
        eps: float = 0.5,
        *,
        min_samples: int = 5,
        metric: str = "euclidean",
        metric_params: dict[str, Any] | None = None,
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.eps = eps
        self.min_samples = min_samples
        self.metric = metric
        self.metric_params = metric_params
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.n_jobs = n_jobs
        self.device = device

    def _check_parameters(self) -> None:
        super()._check_parameters()
        eps = check_radius("eps", self.eps)
        if eps == 0 or eps == np.inf:
            raise ValueError(f"eps={self.eps!r} cannot be used: it is above 0, and finite.")
        check_scalar(self.min_samples, "min_samples", Integral, min_val=1)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DBSCAN:
        """Find the clusters of points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.
        sample_weight : array-like of shape (n_samples,), default=None
            For how much each point counts in its neighbourhood and in its own: a point
            whose weight is `min_samples` is a core by itself, and a negative weight takes
            away from others. 1 for each by default.

        Returns
        -------
        self : DBSCAN
        """
        self._check_parameters()
        points = self._read_points(X, reset=True)
        eps, min_samples = float(self.eps), int(self.min_samples)
        options = self._options(self._effective_metric())
        if sample_weight is None:
            labels, is_core = nearjoin.dbscan(points, eps, min_samples, return_core=True, **options)
        else:
            weights = read_weights(sample_weight, points)
            labels, is_core = weighted_dbscan(points, eps, min_samples, weights, options)
        self.labels_ = labels
        self.core_sample_indices_ = np.flatnonzero(is_core)
        self.components_ = points[is_core]
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int64]:
        """Find the clusters of points, and return their labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.
        sample_weight : array-like of shape (n_samples,), default=None
            For how much each point counts, as for :meth:`fit`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The cluster of each point, or -1 for noise.
        """
        return self.fit(X, sample_weight=sample_weight).labels_


def read_weights(sample_weight: Any, points: Floats) -> NDArray[np.float64]:
    """A weight for each point."""
    if isinstance(sample_weight, Real):
        sample_weight = np.full(len(points), float(sample_weight))
    weights: NDArray[np.float64] = check_array(
        sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if weights.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar, got {weights.ndim}D array.")
    check_consistent_length(weights, points)
    if not weights.any():
        raise ValueError("All sample weights are zero: no point would count.")
    return weights


def weighted_dbscan(
    points: Floats,
    eps: float,
    min_samples: int,
    weights: NDArray[np.float64],
    options: dict[str, Any],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Labels, and whether each point is a core, as of nearjoin.dbscan.

    The sums of weights come first, then the cores and the components that they form, then
    the points beside cores. Each step takes neighbours in batches.
    """
    sums = np.zeros(len(points))
    for block in nearjoin.eps_batches(points, eps, include_self=True, sorted=True, **options):
        # No row is empty, as each point is in its own. Rows are sorted and sums are extended,
        # so that they do not depend on the order in which neighbours are found.
        starts = block.indptr[:-1].astype(np.intp)
        sums[block.queries] = np.add.reduceat(weights[block.indices], starts, dtype=np.longdouble)
    is_core = sums >= min_samples

    labels = np.full(len(points), -1, dtype=np.int64)
    cores, others = np.flatnonzero(is_core), np.flatnonzero(~is_core)
    if len(cores) == 0:
        return labels, is_core
    # Components are numbered in the order of their first points, which are cores here.
    core_labels = nearjoin.components(points[cores], eps, **options)
    labels[cores] = core_labels
    if len(others) == 0:
        return labels, is_core
    for block in nearjoin.eps_batches(points[others], eps, points[cores], **options):
        beside = np.diff(block.indptr) > 0
        if beside.any():
            starts = block.indptr[:-1][beside].astype(np.intp)
            first_cores = np.minimum.reduceat(block.indices, starts)
            labels[others[block.queries[beside]]] = core_labels[first_cores]
    return labels, is_core
