"""Queries for the nearest neighbours and for those within a radius of fitted points."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

import nearjoin

from .._options import finite
from ._base import Floats, JoinEstimator, check_choice, check_radius
from ._graph import Rows, split_rows

Ids = NDArray[np.intp]
Objects = NDArray[np.object_]
GRAPH_MODES = ("connectivity", "distance")


class FittedPoints(JoinEstimator):
    """Points that are kept, to find neighbours among them."""

    def _fit(self, X: Any) -> None:
        self._check_parameters()
        self._fit_X = self._read_points(X, reset=True)
        self.n_samples_fit_ = len(self._fit_X)
        self.effective_metric_ = self._effective_metric()
        self.effective_metric_params_: dict[str, Any] = {}

    def _queries_and_points(self, X: Any) -> tuple[Floats, Floats | None]:
        """The queries and the points to find, or only the points if they are the queries."""
        if X is None:
            return self._fit_X, None
        return self._read_points(X, reset=False), self._fit_X


class NearestQueries(FittedPoints):
    """Queries for the k nearest."""

    n_neighbors: int | None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.n_neighbors is not None:
            check_scalar(self.n_neighbors, "n_neighbors", Integral, min_val=1)

    def _n_neighbors(self, given: Any) -> int:
        value = self.n_neighbors if given is None else given
        if not isinstance(value, Integral):
            raise TypeError(f"n_neighbors is {value!r}, and has to be an integer.")
        if value <= 0:
            raise ValueError(f"Expected n_neighbors > 0. Got {value}")
        return int(value)

    def _check_enough(
        self, n_neighbors: int, n_queries: int, *, without_self: bool = False
    ) -> None:
        """Raise an error if there are fewer points than neighbours to find."""
        n_samples_fit = self.n_samples_fit_
        if n_neighbors > n_samples_fit - without_self:
            raise ValueError(
                f"Expected n_neighbors {'<' if without_self else '<='} n_samples_fit, but "
                f"n_neighbors = {n_neighbors}, n_samples_fit = {n_samples_fit}, "
                f"n_samples = {n_queries}"
            )

    def _nearest(self, X: Any, n_neighbors: int) -> tuple[Floats, NDArray[np.uint32]]:
        """Distances and ids, a row for each query; without the query itself if X is None."""
        queries, points = self._queries_and_points(X)
        self._check_enough(n_neighbors, len(queries), without_self=points is None)
        options = self._options(self.effective_metric_)
        distances, ids = nearjoin.knn_join(queries, n_neighbors, points, **options)
        return distances, ids

    @overload
    def kneighbors(
        self, X: Any = ..., n_neighbors: int | None = ..., return_distance: Literal[True] = ...
    ) -> tuple[Floats, Ids]: ...

    @overload
    def kneighbors(
        self, X: Any = ..., n_neighbors: int | None = ..., *, return_distance: Literal[False]
    ) -> Ids: ...

    @overload
    def kneighbors(
        self, X: Any, n_neighbors: int | None, return_distance: bool
    ) -> tuple[Floats, Ids] | Ids: ...

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[Floats, Ids] | Ids:
        """Find the nearest neighbours of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), default=None
            The queries. Without them, the neighbours of the fitted points are found, and
            no point is its own neighbour.
        n_neighbors : int, default=None
            How many. The default is that of the estimator.
        return_distance : bool, default=True
            Whether to return the distances too.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Ascending in each row. Not there if `return_distance` is False.
        indices : ndarray of shape (n_queries, n_neighbors)
            Rows of the fitted points; of those at the same distance the smaller first.

        Examples
        --------
        >>> from nearjoin.sklearn import NearestNeighbors
        >>> neighbors = NearestNeighbors(n_neighbors=2).fit([[0.0], [1.0], [3.0], [3.0]])
        >>> distances, indices = neighbors.kneighbors([[2.5]])
        >>> distances
        array([[0.5, 0.5]])
        >>> indices
        array([[2, 3]])
        >>> neighbors.kneighbors(n_neighbors=1, return_distance=False)
        array([[1],
               [0],
               [3],
               [2]])
        """
        check_is_fitted(self)
        distances, ids = self._nearest(X, self._n_neighbors(n_neighbors))
        indices = ids.astype(np.intp)
        return (distances, indices) if return_distance else indices

    def kneighbors_graph(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> Any:
        """Find the nearest neighbours of each query, as a sparse matrix.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), default=None
            The queries. Without them, the neighbours of the fitted points are found, and
            no point is its own neighbour.
        n_neighbors : int, default=None
            How many. The default is that of the estimator.
        mode : {'connectivity', 'distance'}, default='connectivity'
            Whether an entry is 1 or the distance.

        Returns
        -------
        graph : sparse matrix of shape (n_queries, n_samples_fit), in CSR format
            Its rows are in order of distance.

        Examples
        --------
        >>> from nearjoin.sklearn import NearestNeighbors
        >>> neighbors = NearestNeighbors(n_neighbors=1).fit([[0.0], [1.0], [3.0]])
        >>> neighbors.kneighbors_graph(mode="distance").toarray()
        array([[0., 1., 0.],
               [1., 0., 0.],
               [0., 2., 0.]])
        """
        check_is_fitted(self)
        check_choice("mode", mode, GRAPH_MODES)
        distances, ids = self._nearest(X, self._n_neighbors(n_neighbors))
        return self._nearest_graph(distances, ids, mode)

    def _nearest_graph(self, distances: Floats, ids: NDArray[np.uint32], mode: str) -> Any:
        n_queries, n_neighbors = ids.shape
        indptr = np.arange(n_queries + 1, dtype=np.int64) * n_neighbors
        data = distances.ravel() if mode == "distance" else None
        return Rows(indptr, ids.ravel(), data).graph(self.n_samples_fit_)


class RadiusQueries(FittedPoints):
    """Queries for all points within a radius."""

    radius: float | None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.radius is not None:
            check_radius("radius", self.radius)

    def _within(
        self, X: Any, radius: Any, *, return_distance: bool, include_self: bool = False
    ) -> Rows:
        """The neighbours of each query, ascending by id."""
        eps = check_radius("radius", self.radius if radius is None else radius)
        queries, points = self._queries_and_points(X)
        if eps == np.inf:
            eps = finite(eps, np.result_type(queries, self._fit_X))
        result = nearjoin.eps_join(
            queries,
            eps,
            points,
            include_self=include_self,
            sorted=True,
            return_distance=return_distance,
            **self._options(self.effective_metric_),
        )
        return Rows(result.indptr.view(np.int64), result.indices, result.distances)

    @overload
    def radius_neighbors(
        self,
        X: Any = ...,
        radius: float | None = ...,
        return_distance: Literal[True] = ...,
        sort_results: bool = ...,
    ) -> tuple[Objects, Objects]: ...

    @overload
    def radius_neighbors(
        self,
        X: Any = ...,
        radius: float | None = ...,
        *,
        return_distance: Literal[False],
        sort_results: bool = ...,
    ) -> Objects: ...

    @overload
    def radius_neighbors(
        self, X: Any, radius: float | None, return_distance: bool, sort_results: bool = ...
    ) -> tuple[Objects, Objects] | Objects: ...

    def radius_neighbors(
        self,
        X: Any = None,
        radius: float | None = None,
        return_distance: bool = True,
        sort_results: bool = False,
    ) -> tuple[Objects, Objects] | Objects:
        """Find all points within a radius of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), default=None
            The queries. Without them, the neighbours of the fitted points are found, and
            no point is its own neighbour.
        radius : float, default=None
            The largest distance of a neighbour; one at just this distance is found.
            Infinity finds all points. The default is that of the estimator.
        return_distance : bool, default=True
            Whether to return the distances too.
        sort_results : bool, default=False
            Whether neighbours are in order of distance; else they are in order of their
            indices. Needs `return_distance`.

        Returns
        -------
        distances : ndarray of shape (n_queries,), of arrays
            Not there if `return_distance` is False.
        indices : ndarray of shape (n_queries,), of arrays
            Rows of the fitted points.

        See Also
        --------
        nearjoin.eps_join : The same in three flat arrays, which take less memory.
        nearjoin.eps_batches : The same in parts, for results that are larger than memory.

        Examples
        --------
        >>> from nearjoin.sklearn import NearestNeighbors
        >>> neighbors = NearestNeighbors(radius=1.0).fit([[0.0], [1.0], [3.0]])
        >>> distances, indices = neighbors.radius_neighbors([[0.5], [2.0], [9.0]])
        >>> [row.tolist() for row in indices]
        [[0, 1], [1, 2], []]
        >>> [row.tolist() for row in distances]
        [[0.5, 0.5], [1.0, 1.0], []]
        """
        check_is_fitted(self)
        if sort_results and not return_distance:
            raise ValueError("return_distance must be True if sort_results is True.")
        rows = self._within(X, radius, return_distance=return_distance)
        if sort_results:
            rows.sort_by_distance()
        indices = split_rows(rows.ids.astype(np.intp), rows.indptr)
        if rows.distances is None:
            return indices
        return split_rows(rows.distances, rows.indptr), indices

    def radius_neighbors_graph(
        self,
        X: Any = None,
        radius: float | None = None,
        mode: Literal["connectivity", "distance"] = "connectivity",
        sort_results: bool = False,
    ) -> Any:
        """Find all points within a radius of each query, as a sparse matrix.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), default=None
            The queries. Without them, the neighbours of the fitted points are found, and
            no point is its own neighbour.
        radius : float, default=None
            The largest distance of a neighbour. The default is that of the estimator.
        mode : {'connectivity', 'distance'}, default='connectivity'
            Whether an entry is 1 or the distance. A distance of 0 is an entry too.
        sort_results : bool, default=False
            Whether entries of a row are in order of distance; else they are in order of
            their columns. Only with ``mode='distance'``.

        Returns
        -------
        graph : sparse matrix of shape (n_queries, n_samples_fit), in CSR format

        Examples
        --------
        >>> from nearjoin.sklearn import NearestNeighbors
        >>> neighbors = NearestNeighbors(radius=2.0).fit([[0.0], [1.0], [3.0]])
        >>> neighbors.radius_neighbors_graph().toarray()
        array([[0., 1., 0.],
               [1., 0., 1.],
               [0., 1., 0.]])
        """
        check_is_fitted(self)
        check_choice("mode", mode, GRAPH_MODES)
        return self._radius_graph(X, radius, mode, sort_results=sort_results)

    def _radius_graph(
        self, X: Any, radius: Any, mode: str, *, sort_results: bool, include_self: bool = False
    ) -> Any:
        weighted = mode == "distance"
        rows = self._within(X, radius, return_distance=weighted, include_self=include_self)
        if weighted and sort_results:
            rows.sort_by_distance(own_first=include_self)
        return rows.graph(self.n_samples_fit_)


class NearestNeighbors(NearestQueries, RadiusQueries):
    """The nearest neighbours of points, and those within a radius.

    Parameters
    ----------
    n_neighbors : int, default=5
        How many neighbours :meth:`kneighbors` finds.
    radius : float, default=1.0
        How far :meth:`radius_neighbors` looks. A point at just this distance is found.
    algorithm : {'auto', 'ball_tree', 'kd_tree', 'brute'}, default='auto'
        Has no effect.
    leaf_size : int, default=30
        Has no effect.
    metric : str, default='minkowski'
        'euclidean' or 'l2', 'manhattan', 'cityblock' or 'l1', 'chebyshev' or 'linf', or
        'minkowski' with its `p`.
    p : float, default=2
        1, 2 or infinity, for the metric 'minkowski'.
    metric_params : None
        Has to be None.
    n_jobs : int, default=None
        How many threads to use. None and -1 stand for all cores.
    device : {'auto', 'cpu', 'gpu', 'hybrid'}, default='auto'
        Where the work is done; 'hybrid' is on both.

    Attributes
    ----------
    effective_metric_ : str
        The metric, with that which it is in place of 'minkowski'.
    effective_metric_params_ : dict
        Empty.
    n_samples_fit_ : int
        How many points were fitted.
    n_features_in_ : int
        How many coordinates they have.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, if all of them are strings.

    See Also
    --------
    nearjoin.knn_join, nearjoin.eps_join : The functions behind it.

    Examples
    --------
    >>> from nearjoin.sklearn import NearestNeighbors
    >>> points = [[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]]
    >>> neighbors = NearestNeighbors(n_neighbors=1).fit(points)
    >>> neighbors.kneighbors([[4.0, 5.0]])
    (array([[1.]]), array([[2]]))
    """

    def __init__(
        self,
        *,
        n_neighbors: int | None = 5,
        radius: float | None = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str = "minkowski",
        p: float | None = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Keep the points among which neighbours will be found.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.

        Returns
        -------
        self : NearestNeighbors
        """
        self._fit(X)
        return self
