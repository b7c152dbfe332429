"""The interface of :class:`scipy.spatial.KDTree`, answered by joins of whole sets.

A program that makes a ``KDTree`` and asks it about many points at once changes one import:

>>> from nearjoin.spatial import KDTree
>>> tree = KDTree([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
>>> distances, indices = tree.query([[0.0, 1.0], [6.0, 7.0]], k=2)
>>> indices.tolist()
[[0, 1], [2, 1]]

Only numpy is needed, and scipy where a sparse matrix is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._tree_joins import Join

__all__ = ["KDTree", "cKDTree"]

_SPARSE = ("dok_matrix", "coo_matrix", "dok_array", "coo_array")


class KDTree:
    """Points to be asked for neighbours, as :class:`scipy.spatial.KDTree` is.

    The class keeps the points and nothing else. Each call plans a join of all its queries with
    all points, builds the index that suits it, and drops it again. Pass all queries in one call:
    a loop over single points builds an index for each of them, and is the wrong way to use this
    class.

    Answers are exact. Neighbours at the same distance are ordered by index.

    Parameters
    ----------
    data : array_like, shape (n, m)
        The points: finite real numbers. Not copied if they are a C-contiguous array of float64
        or float32, unless ``copy_data`` is true; do not change them while the tree is in use.
    leafsize, compact_nodes, balanced_tree
        Accepted, and without effect: there are no nodes.
    boxsize : None or 0
        Periodic boxes are not supported.

    Attributes
    ----------
    data : ndarray, shape (n, m)
        The points: ``n`` of them, with ``m`` coordinates each.
    maxes, mins : ndarray, shape (m,)
        The largest and the smallest value of each coordinate; 0 if there are no points.
    size : int
        The number of nodes: always 1, which has all points.

    Notes
    -----
    All methods have ``p``, the norm: 1, 2 or infinity. ``eps``, the factor of approximation, must
    be 0. Other values are a ``NotImplementedError``. ``workers`` is the number of threads, -1 for
    all; methods without it use all.

    If the points and the queries (or both trees) are float32, distances are computed and
    returned in float32, radii are rounded to float32, and no float64 copy is made. Otherwise
    all is done in float64.

    Nothing lies within a radius that is negative or NaN. (For ``p=2`` scipy squares the radius,
    and so takes its absolute value.)
    """

    def __init__(
        self,
        data: ArrayLike,
        leafsize: int = 10,
        compact_nodes: bool = True,
        copy_data: bool = False,
        balanced_tree: bool = True,
        boxsize: ArrayLike | None = None,
    ) -> None:
        if boxsize is not None and np.any(np.asarray(boxsize) != 0):
            raise NotImplementedError(
                "periodic boxes are not supported: leave boxsize out, or use scipy.spatial.KDTree"
            )
        points = _real(data, np.float32)
        if points.ndim != 2 or points.shape[1] == 0:
            raise ValueError(
                "data must be of shape (n, m), n points of m coordinates, "
                f"but has shape {np.shape(data)}"
            )
        if int(leafsize) < 1:
            raise ValueError(f"leafsize must be at least 1, not {leafsize}")
        self.data = points.copy() if copy_data else points
        self.n, self.m = points.shape
        self.leafsize = int(leafsize)
        # A NaN anywhere in a column is its maximum and its minimum.
        self.maxes = points.max(axis=0) if self.n else np.zeros(self.m, points.dtype)
        self.mins = points.min(axis=0) if self.n else np.zeros(self.m, points.dtype)
        _check_finite("data", self.maxes, self.mins)
        self.size = 1
        self.boxsize = None

    def query(
        self,
        x: ArrayLike,
        k: ArrayLike = 1,
        eps: float = 0.0,
        p: float = 2.0,
        distance_upper_bound: float = np.inf,
        workers: int = 1,
    ) -> tuple[Any, Any]:
        """Find the nearest points.

        Parameters
        ----------
        x : array_like, last axis of length m
            The queries, in any number of axes before the last.
        k : int or sequence of int
            How many neighbours, or which: ``[1, 3]`` are the nearest and the third.
        distance_upper_bound : float
            Only points nearer than this are neighbours.

        Returns
        -------
        d, i : float and int, or ndarray
            Distances, ascending, and indices into ``data``. The shape is that of ``x`` without its
            last axis, with one axis more for the neighbours unless ``k`` is the number 1. Where
            there is no neighbour, ``d`` is infinite and ``i`` is ``n``.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0]])
        >>> d, i = tree.query([[0.75], [9.0]], k=[1, 3], distance_upper_bound=5.0)
        >>> d
        array([[0.25, 4.25],
               [4.  ,  inf]])
        >>> i
        array([[1, 2],
               [2, 3]])
        """
        ranks = _ranks(k)
        points, shape = self._queries(x)
        join = Join(points, self.data, p, eps, workers)
        distances, indices = join.nearest(int(np.max(ranks)), distance_upper_bound)
        if ranks.ndim == 0 and ranks == 1:
            distances, indices = distances.reshape(shape), indices.reshape(shape)
            return (distances, indices) if shape else (float(distances), indices[()])
        if ranks.ndim == 1:
            distances, indices = distances[:, ranks - 1], indices[:, ranks - 1]
        shape += distances.shape[1:]
        return distances.reshape(shape), indices.reshape(shape)

    def query_ball_point(
        self,
        x: ArrayLike,
        r: ArrayLike,
        p: float = 2.0,
        eps: float = 0.0,
        workers: int = 1,
        return_sorted: bool | None = None,
        return_length: bool = False,
    ) -> Any:
        """Find all points within a radius of each query.

        Parameters
        ----------
        x : array_like, last axis of length m
            The queries, in any number of axes before the last.
        r : float or array_like
            The radius, or one for each query. Different radii cost the time of the largest.
        return_sorted : bool, optional
            Accepted, and without effect: indices are always ascending.
        return_length : bool
            Whether to return how many points there are instead of which. That needs no memory
            for the indices.

        Returns
        -------
        list, int, or ndarray of them
            For one query a list of indices into ``data``; otherwise an array of such lists with
            the shape of ``x`` without its last axis. :func:`nearjoin.eps_join` gives the same in
            flat arrays, in less memory and time.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0]])
        >>> tree.query_ball_point([0.5], 0.5)
        [0, 1]
        >>> tree.query_ball_point([[0.0], [4.0]], [0.5, 3.0]).tolist()
        [[0], [1, 2]]
        >>> tree.query_ball_point([[0.0], [4.0]], 3.0, return_length=True)
        array([2, 2])
        """
        points, shape = self._queries(x)
        radii = np.broadcast_to(np.asarray(r, np.float64), shape).ravel()
        join = Join(points, self.data, p, eps, workers)
        if return_length:
            return join.lengths(radii).reshape(shape)[()]
        lists = join.lists(radii)
        if not shape:
            return lists[0]
        balls = np.empty(len(lists), object)
        for row, ball in enumerate(lists):
            balls[row] = ball
        return balls.reshape(shape)

    def query_ball_tree(
        self, other: KDTree, r: float, p: float = 2.0, eps: float = 0.0
    ) -> list[list[int]]:
        """Find, for each point of this tree, all points of another within a radius.

        Parameters
        ----------
        other : KDTree
            The other tree, or this one: a point is then in its own list.
        r : float
            The radius.

        Returns
        -------
        list of list of int
            Ascending indices into ``other.data``.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0]])
        >>> tree.query_ball_tree(KDTree([[0.5], [4.0]]), 1.0)
        [[0], [0], [1]]
        """
        return self._join(other, p, eps).lists(np.full(self.n, float(r)))

    def query_pairs(
        self, r: float, p: float = 2.0, eps: float = 0.0, output_type: str = "set"
    ) -> Any:
        """Find all pairs of points within a radius of each other.

        Parameters
        ----------
        r : float
            The radius.
        output_type : {'set', 'ndarray'}
            A set of tuples, or an array of shape (pairs, 2), which takes far less memory.

        Returns
        -------
        set or ndarray
            Pairs ``(i, j)`` with ``i < j``; those of an array are in ascending order.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0], [4.0]])
        >>> tree.query_pairs(1.0, output_type='ndarray')
        array([[0, 1],
               [2, 3]])
        """
        _check_output(output_type, ("set", "ndarray"))
        left, right = self._join(self, p, eps).pairs(r, half=True)
        if output_type == "set":
            return set(zip(left.tolist(), right.tolist()))
        pairs = np.empty((len(left), 2), np.intp)
        pairs[:, 0], pairs[:, 1] = left, right
        return pairs

    def count_neighbors(
        self,
        other: KDTree,
        r: ArrayLike,
        p: float = 2.0,
        weights: Any = None,
        cumulative: bool = True,
    ) -> Any:
        """Count the pairs of a point of this tree and one of another within a radius.

        Parameters
        ----------
        other : KDTree
            The other tree, or this one: a point then counts as a pair with itself.
        r : float or array_like
            The radius, or several. Pairs are counted anew for each, unless there are weights.
        weights : array_like, or tuple of two, optional
            A weight for each point of this tree and of the other; either may be None. One array
            is for both if they are the same tree. A pair counts as the product of its weights.
            Products are added in the order in which pairs are found, which may differ from run
            to run, and the last digits of a sum with it.
        cumulative : bool
            Whether a pair counts for every radius that it lies within, or only for the first:
            ``r`` must then not decrease.

        Returns
        -------
        int, float or ndarray
            Counts, or sums of weights, one for each radius.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0]])
        >>> tree.count_neighbors(tree, [0.0, 1.0, 10.0])
        array([3, 5, 9])
        >>> tree.count_neighbors(tree, [0.0, 1.0, 10.0], cumulative=False)
        array([3, 2, 4])
        """
        radii = np.asarray(r, np.float64)
        if radii.ndim > 1:
            raise ValueError(f"r must be a number or have one axis, not shape {radii.shape}")
        if not cumulative and np.any(np.diff(radii.ravel()) < 0):
            raise ValueError("r must not decrease where counts are not cumulative")
        if weights is not None and not isinstance(weights, tuple) and other is not self:
            raise ValueError("the trees differ: give weights for both, as a tuple of two")
        ours, theirs = weights if isinstance(weights, tuple) else (weights, weights)
        join = self._join(other, p)
        edges, first, inverse = np.unique(
            join.in_type(radii.ravel()), return_index=True, return_inverse=True
        )
        shells: NDArray[Any]
        if ours is None and theirs is None:
            shells = np.diff([join.count(edge) for edge in edges], prepend=0).astype(np.intp)
        else:
            shells = join.weigh(edges, self._weights(ours), other._weights(theirs))
        if cumulative:
            result = np.cumsum(shells)[inverse]
        else:
            result = np.zeros(radii.size, shells.dtype)
            result[first] = shells
        if radii.ndim == 1:
            return result
        return int(result[0]) if shells.dtype == np.intp else result[0]

    def sparse_distance_matrix(
        self,
        other: KDTree,
        max_distance: float,
        p: float = 2.0,
        output_type: str = "dok_matrix",
    ) -> Any:
        """Compute the distances up to a largest one between this tree and another.

        Parameters
        ----------
        other : KDTree
            The other tree, or this one: the zeros of the diagonal are then among the entries.
        max_distance : float
            The largest distance.
        output_type : str
            'dok_matrix', 'coo_matrix', 'dok_array' or 'coo_array' of :mod:`scipy.sparse`; 'dict'
            with keys ``(i, j)``; or 'ndarray' of records with the fields ``i``, ``j`` and ``v``.

        Returns
        -------
        sparse matrix, dict or ndarray
            In row ``i`` and column ``j`` the distance of ``self.data[i]`` and ``other.data[j]``.
            'coo_matrix' and 'ndarray' take the least time and memory.

        Examples
        --------
        >>> tree = KDTree([[0.0], [1.0], [5.0]])
        >>> tree.sparse_distance_matrix(KDTree([[0.5], [4.0]]), 1.0, output_type='dict')
        {(0, 0): 0.5, (1, 0): 0.5, (2, 1): 1.0}
        """
        _check_output(output_type, (*_SPARSE, "dict", "ndarray"))
        rows, columns, distances = self._join(other, p).pairs(max_distance)
        if output_type == "dict":
            return dict(zip(zip(rows.tolist(), columns.tolist()), distances.tolist()))
        if output_type == "ndarray":
            fields = [("i", np.intp), ("j", np.intp), ("v", distances.dtype)]
            records = np.empty(len(rows), np.dtype(fields, align=True))
            records["i"], records["j"], records["v"] = rows, columns, distances
            return records
        import scipy.sparse

        kind, container = output_type.split("_")
        coo = getattr(scipy.sparse, f"coo_{container}", None)
        if coo is None:
            raise ValueError(f"{output_type} needs a newer scipy than {scipy.__version__}")
        matrix = coo((distances, (rows, columns)), shape=(self.n, other.n))
        return matrix.todok() if kind == "dok" else matrix

    def _queries(self, x: ArrayLike) -> tuple[NDArray[Any], tuple[int, ...]]:
        """The queries as rows, in the type they are asked in, and their shape without its last
        axis."""
        points = _real(x, self.data.dtype)
        if points.shape[-1] != self.m:
            raise ValueError(
                f"x must be points of {self.m} coordinates in its last axis, "
                f"but has shape {np.shape(x)}"
            )
        _check_finite("x", points)
        rows = points if points.ndim == 2 else points.reshape(-1, self.m)
        return rows, points.shape[:-1]

    def _join(self, other: KDTree, p: float, eps: float = 0.0) -> Join:
        """The join of this tree's points with another's."""
        if not isinstance(other, KDTree):
            raise TypeError(
                f"other must be a nearjoin.spatial.KDTree, not a {type(other).__name__}"
            )
        if other.m != self.m:
            raise ValueError(
                f"the trees have points of different dimensions, {self.m} and {other.m}"
            )
        return Join(self.data, other.data, p, eps)

    def _weights(self, weights: ArrayLike | None) -> NDArray[np.float64]:
        """A weight for each point: 1 where none are given."""
        if weights is None:
            return np.ones(self.n)
        array = np.asarray(weights, np.float64)
        if array.shape != (self.n,):
            raise ValueError(
                f"there must be one weight for each of {self.n} points, "
                f"but weights have shape {array.shape}"
            )
        return array


cKDTree = KDTree


def _ranks(k: ArrayLike) -> NDArray[Any]:
    """``k``, checked: a number of neighbours, or an array of ranks, counted from 1."""
    ranks = np.asarray(k)
    if ranks.dtype.kind not in "iu" or ranks.ndim > 1 or ranks.size == 0:
        raise ValueError(f"k must be an integer or a sequence of integers, not {k!r}")
    if np.min(ranks) < 1:
        raise ValueError(f"k must be at least 1, not {np.min(ranks)}")
    return ranks


def _real(points: ArrayLike, keep: Any) -> NDArray[Any]:
    """A C-contiguous array: float32 where it is that and ``keep`` is, and float64 otherwise."""
    if np.ma.is_masked(points):
        raise ValueError("points have masked values: every coordinate must be there")
    array = np.asarray(points)
    if array.dtype.kind == "c":
        raise TypeError("complex data are not supported: points have real coordinates")
    kind = np.float32 if array.dtype == keep == np.float32 else np.float64
    return np.ascontiguousarray(array, kind)


def _check_finite(name: str, *arrays: NDArray[Any]) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(f"{name} must be finite, but there is NaN or infinity in it")


def _check_output(output_type: str, known: tuple[str, ...]) -> None:
    if output_type not in known:
        raise ValueError(f"output_type must be one of {', '.join(known)}, not {output_type!r}")
