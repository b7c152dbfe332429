"""Points to sparse graphs of their neighbours, for pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ._base import check_choice
from ._neighbors import GRAPH_MODES, FittedPoints, NearestQueries, RadiusQueries


class GraphTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    FittedPoints,
):
    """A transformer to a column for each point that was fitted."""

    mode: str

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("mode", self.mode, GRAPH_MODES)

    @property
    def _n_features_out(self) -> int:
        return self.n_samples_fit_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.mode == "distance":
            tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class KNeighborsTransformer(GraphTransformer, NearestQueries):
    """Transform points to the sparse graph of their nearest neighbours.

    Parameters
    ----------
    mode : {'distance', 'connectivity'}, default='distance'
        Whether an entry of the graph is the distance or 1.
    n_neighbors : int, default=5
        How many neighbours a row has. In the mode 'distance' it has one more, because a
        point that was fitted is the first of its own neighbours.
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

    Examples
    --------
    >>> from nearjoin.sklearn import KNeighborsTransformer
    >>> graph = KNeighborsTransformer(n_neighbors=1).fit_transform([[0.0], [1.0], [3.0]])
    >>> graph.toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 2., 0.]])
    >>> graph.indices.reshape(3, 2)
    array([[0, 1],
           [1, 0],
           [2, 1]], dtype=int32)
    """

    def __init__(
        self,
        *,
        mode: str = "distance",
        n_neighbors: int = 5,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str = "minkowski",
        p: float | None = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.mode = mode
        self.n_neighbors = n_neighbors
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, y: Any = None) -> KNeighborsTransformer:
        """Keep the points among which neighbours will be found.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.

        Returns
        -------
        self : KNeighborsTransformer
        """
        self._fit(X)
        return self

    def transform(self, X: Any) -> Any:
        """The graph of the nearest fitted points of each point.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The points, any of which may be among those that were fitted.

        Returns
        -------
        graph : sparse matrix of shape (n_queries, n_samples_fit), in CSR format
            Its rows are in order of distance.
        """
        check_is_fitted(self)
        distances, ids = self._nearest(X, self._row_length())
        return self._nearest_graph(distances, ids, self.mode)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """The graph of the nearest of the points themselves.

        It is that of ``fit(X).transform(X)``, but for duplicates: here each point is
        the first of its own row even if others are at the same place.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.

        Returns
        -------
        graph : sparse matrix of shape (n_samples, n_samples), in CSR format
            Its rows are in order of distance, and begin with the diagonal.
        """
        self._fit(X)
        n_samples, length = self.n_samples_fit_, self._row_length()
        self._check_enough(length, n_samples)
        own_ids = np.arange(n_samples, dtype=np.uint32)
        own_distances = np.zeros(n_samples, dtype=self._fit_X.dtype)
        if length == 1:
            return self._nearest_graph(own_distances[:, None], own_ids[:, None], self.mode)
        distances, ids = self._nearest(None, length - 1)
        distances = np.column_stack((own_distances, distances))
        return self._nearest_graph(distances, np.column_stack((own_ids, ids)), self.mode)

    def _row_length(self) -> int:
        return self._n_neighbors(None) + (self.mode == "distance")


class RadiusNeighborsTransformer(GraphTransformer, RadiusQueries):
    """Transform points to the sparse graph of their neighbours within a radius.

    Parameters
    ----------
    mode : {'distance', 'connectivity'}, default='distance'
        Whether an entry of the graph is the distance or 1.
    radius : float, default=1.0
        The largest distance of a neighbour. A point at just this distance is one.
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

    Examples
    --------
    >>> from nearjoin.sklearn import RadiusNeighborsTransformer
    >>> graph = RadiusNeighborsTransformer(radius=2.0).fit_transform([[0.0], [1.0], [3.0]])
    >>> graph.toarray()
    array([[0., 1., 0.],
           [1., 0., 2.],
           [0., 2., 0.]])
    >>> graph.nnz
    7
    """

    def __init__(
        self,
        *,
        mode: str = "distance",
        radius: float = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str = "minkowski",
        p: float | None = 2,
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
    ) -> None:
        self.mode = mode
        self.radius = radius
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.n_jobs = n_jobs
        self.device = device

    def fit(self, X: Any, y: Any = None) -> RadiusNeighborsTransformer:
        """Keep the points among which neighbours will be found.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.

        Returns
        -------
        self : RadiusNeighborsTransformer
        """
        self._fit(X)
        return self

    def transform(self, X: Any) -> Any:
        """The graph of the fitted points within the radius of each point.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The points, any of which may be among those that were fitted.

        Returns
        -------
        graph : sparse matrix of shape (n_queries, n_samples_fit), in CSR format
            Its rows are in order of distance in the mode 'distance', else in order of
            their columns.
        """
        check_is_fitted(self)
        return self._radius_graph(X, None, self.mode, sort_results=True)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """The graph of the points themselves, each of which is its own neighbour.

        It is that of ``fit(X).transform(X)``, but for the order of duplicates: here
        each point is the first of its own row in the mode 'distance'.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The points.
        y : None
            Has no effect.

        Returns
        -------
        graph : sparse matrix of shape (n_samples, n_samples), in CSR format
            Its rows are in order of distance in the mode 'distance', else in order of
            their columns.
        """
        self._fit(X)
        return self._radius_graph(None, None, self.mode, sort_results=True, include_self=True)
