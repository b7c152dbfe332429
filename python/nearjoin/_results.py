"""Answers, and what they turn into."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import numpy as np
from numpy.typing import NDArray

#: Stands in ``KnnResult.indices`` where a point has fewer than k neighbours.
MISSING = 0xFFFF_FFFF


@dataclass(frozen=True)
class Plan:
    """What a join will do, or did; ``str(plan)`` explains it.

    Attributes
    ----------
    strategy, device : str
        How candidates are found, and where: never ``"auto"``.
    estimated_pairs, estimated_seconds : float
        What is expected, by a sample.
    threads : int
        Threads of the processor that work.
    index_bytes, memory_limit : int
        Bytes of the index at the most, and bytes that the join may use beside its input.
    why_no_gpu : str or None
        Why a GPU that could have been used is not.
    """

    strategy: str
    device: str
    estimated_pairs: float
    estimated_seconds: float
    threads: int
    index_bytes: int
    memory_limit: int
    why_no_gpu: Optional[str]
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


class EpsResult:
    """The neighbours of every point within ε, row by row.

    The neighbours of point ``i`` are ``indices[indptr[i]:indptr[i + 1]]``, and so are their
    distances. The arrays are the engine's own memory: nothing was copied, and they may be written
    to. ``len(result)`` is the number of pairs; iterating, and ``result[i]``, give the neighbours of one
    point after the other.

    Attributes
    ----------
    indptr : ndarray of uint64
        Where each row begins, and the end.
    indices : ndarray of uint32
        Rows of ``y``, or of ``x`` where a set was joined with itself.
    distances : ndarray or None
        Distances, in the type of the points, if they were asked for.
    shape : tuple of int
        Points of ``x`` and of ``y``.
    stats : dict
        What was done, and how long it took.
    plan : Plan
        What was planned.

    Examples
    --------
    >>> import nearjoin
    >>> result = nearjoin.eps_join([[0.0], [1.0], [1.5]], 1.0, sorted=True)
    >>> len(result)
    4
    >>> [row.tolist() for row in result]
    [[1], [0, 2], [1]]
    """

    __slots__ = ("indptr", "indices", "distances", "shape", "stats", "plan")

    def __init__(
        self,
        indptr: NDArray[np.uint64],
        indices: NDArray[np.uint32],
        distances: Optional[NDArray[Any]],
        shape: tuple[int, int],
        stats: dict[str, Any],
        plan: Plan,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.distances = distances
        self.shape = shape
        self.stats = stats
        self.plan = plan

    def __reduce__(self) -> tuple[Any, ...]:
        return EpsResult, tuple(getattr(self, name) for name in self.__slots__)

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.indices)

    def __bool__(self) -> bool:
        return len(self.indices) > 0

    def __iter__(self) -> Iterator[NDArray[np.uint32]]:
        """The neighbours of each point."""
        for row in range(self.shape[0]):
            yield self[row]

    def __getitem__(self, row: int) -> NDArray[np.uint32]:
        """The neighbours of one point."""
        rows, row = self.shape[0], operator.index(row)
        if not -rows <= row < rows:
            raise IndexError(f"there is no row {row}: there are {rows}")
        row %= rows
        return self.indices[int(self.indptr[row]) : int(self.indptr[row + 1])]

    # The length is that of the pairs, and there is no sequence of them to turn around.
    __reversed__ = None

    def __repr__(self) -> str:
        rows, columns = self.shape
        told = "" if self.distances is None else ", with distances"
        return f"<EpsResult: {len(self)} pairs of {rows} × {columns} points{told}>"

    def to_pairs(self) -> tuple[NDArray[Any], ...]:
        """All pairs as columns: rows of ``x``, rows of ``y`` and, if there are any, distances.

        Examples
        --------
        >>> import nearjoin
        >>> left, right = nearjoin.eps_join([[0.0], [1.0], [1.5]], 1.0, half=True).to_pairs()
        >>> left.tolist(), right.tolist()
        ([0, 1], [1, 2])
        """
        pairs = (_left(self.indptr), self.indices)
        return pairs if self.distances is None else (*pairs, self.distances)

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array``: of distances if there are any, else of ``True``.

        A distance of 0 is stored like any other. The indices and the distances are those of this
        result: what scipy does to them in place, as by ``sort_indices``, is done to it.
        """
        return _csr(self.indptr, self.indices, self.distances, self.shape)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` of pairs, with columns left, right and, if there are any, distance."""
        return _table(*self.to_pairs())


class KnnResult(tuple[NDArray[Any], NDArray[np.uint32]]):
    """The k nearest of every point: ``distances, indices = nearjoin.knn_join(x, k)``.

    Row ``i`` of both belongs to point ``i`` of ``x`` and ascends by distance, before its last rounding
    (for ``"l2"``, by the sum of squares), then by index. Where
    there are fewer than k neighbours, the rest of the row has the index ``nearjoin.MISSING`` and the
    distance infinity. The arrays are the engine's own memory: nothing was copied, and they may be
    written to.

    Attributes
    ----------
    distances : ndarray, n × k
        Distances, in the type of the points.
    indices : ndarray of uint32, n × k
        Rows of ``y``, or of ``x`` where a set was joined with itself.
    shape : tuple of int
        Points of ``x`` and of ``y``.
    stats : dict
        What was done, and how long it took.
    plan : Plan
        What was planned.

    Examples
    --------
    >>> import nearjoin
    >>> distances, indices = nearjoin.knn_join([[0.0], [1.0], [3.0]], 1)
    >>> distances.ravel().tolist(), indices.ravel().tolist()
    ([1.0, 1.0, 2.0], [1, 0, 1])
    """

    shape: tuple[int, int]
    stats: dict[str, Any]
    plan: Plan

    def __new__(
        cls,
        distances: NDArray[Any],
        indices: NDArray[np.uint32],
        shape: tuple[int, int],
        stats: dict[str, Any],
        plan: Plan,
    ) -> KnnResult:
        result = super().__new__(cls, (distances, indices))
        result.shape, result.stats, result.plan = shape, stats, plan
        return result

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.distances, self.indices, self.shape, self.stats, self.plan)

    @property
    def distances(self) -> NDArray[Any]:
        return self[0]

    @property
    def indices(self) -> NDArray[np.uint32]:
        return self[1]

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<KnnResult: {self.indices.shape[1]} nearest of {rows} × {columns} points>"

    def _csr(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[Any]]:
        """As rows of the neighbours that there are."""
        distances, indices = self
        rows, k = indices.shape
        found = indices != MISSING
        indptr = np.zeros(rows + 1, np.uint64)
        if found.all():
            indptr[1:] = np.arange(k, k * rows + k, k, dtype=np.uint64) if k else 0
            return indptr, indices.reshape(-1), distances.reshape(-1)
        np.cumsum(found.sum(axis=1), out=indptr[1:])
        return indptr, indices[found], distances[found]

    def to_scipy(self) -> Any:
        """A ``scipy.sparse.csr_array`` of the distances to the neighbours that there are.

        Where no row is padded, the matrix has the memory of this result.
        """
        return _csr(*self._csr(), self.shape)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row for each neighbour: columns left, right and distance."""
        indptr, indices, distances = self._csr()
        return _table(_left(indptr), indices, distances)


class EpsBlock(NamedTuple):
    """Some rows of an answer: the neighbours of point ``queries[i]`` of ``x`` are
    ``indices[indptr[i]:indptr[i + 1]]``."""

    queries: NDArray[np.uint32]
    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    distances: Optional[NDArray[Any]]


class KnnBlock(NamedTuple):
    """Some rows of an answer: row ``i`` belongs to point ``queries[i]`` of ``x``, as in
    ``KnnResult``."""

    queries: NDArray[np.uint32]
    distances: NDArray[Any]
    indices: NDArray[np.uint32]


def _csr(
    indptr: NDArray[np.uint64],
    indices: NDArray[np.uint32],
    distances: Optional[NDArray[Any]],
    shape: tuple[int, int],
) -> Any:
    from scipy.sparse import csr_array

    data = np.ones(len(indices), np.bool_) if distances is None else distances
    rows, ids = signed(indptr, indices, shape[1])
    return csr_array((data, ids, rows), shape=shape)


def signed(
    indptr: NDArray[Any], indices: NDArray[np.uint32], columns: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Offsets and indices as scipy has them, in one signed type: of four bytes where that will do, so
    that the indices are the same memory."""
    if max(len(indices), len(indptr), columns) <= np.iinfo(np.int32).max:
        return indptr.astype(np.int32), indices.view(np.int32)
    return indptr.astype(np.int64, copy=False), indices.astype(np.int64)


def _left(indptr: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The row of each pair."""
    lengths = np.diff(indptr).astype(np.intp, copy=False)
    return np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)


def _table(
    left: NDArray[Any], right: NDArray[Any], distances: Optional[NDArray[Any]] = None
) -> Any:
    import pyarrow as pa

    columns = {"left": pa.array(left), "right": pa.array(right)}
    if distances is not None:
        columns["distance"] = pa.array(distances)
    return pa.table(columns)
