"""Answers in parts, for those that are larger than the memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Callable, Generic, Optional, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _nearjoin
from ._options import farthest, number, options, whole
from ._points import points
from ._results import MISSING, EpsBlock, KnnBlock

_Block = TypeVar("_Block")


class Batches(Generic[_Block], Iterator[_Block]):
    """Blocks of an answer, found while they are asked for.

    The join goes on in the background as far as there is room for some blocks. It ends when the
    iterator is exhausted, closed or forgotten; ``with`` closes it. Until then the points are read, and
    must not be written to.
    """

    def __init__(
        self, raw: _nearjoin.Batches, make: Callable[..., Iterator[_Block]]
    ) -> None:
        self._raw = raw
        self._make = make
        self._rest: Iterator[_Block] = iter(())
        self._lock = threading.RLock()

    def __iter__(self) -> Batches[_Block]:
        return self

    def __next__(self) -> _Block:
        while True:
            with self._lock:
                for block in self._rest:
                    return block
            # Several threads may wait here.
            part = next(self._raw)
            with self._lock:
                self._rest = itertools.chain(self._rest, self._make(*part))

    def close(self) -> None:
        """Stops the join. Asked for more, the iterator is at its end."""
        self._raw.close()
        with self._lock:
            self._rest = iter(())

    def __enter__(self) -> Batches[_Block]:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def eps_batches(
    x: Any,
    eps: float,
    y: Any = None,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    sorted: bool = False,
    return_distance: bool = False,
    half: bool = False,
    batch_pairs: int = 1_000_000,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
) -> Batches[EpsBlock]:
    """The neighbours of every point within a distance ``eps``, a block of rows at a time.

    For answers that are larger than the memory. Every point of ``x`` comes exactly once, with all its
    neighbours; the order of the points is not specified. The options are those of `eps_join`; with
    ``half`` a pair comes once, under either of its points. Do not write to the points, or resize them,
    before the iterator is exhausted or closed.

    What is wrong with the points or the options is raised when the first block is asked for.

    Parameters
    ----------
    batch_pairs : int
        Pairs in a block, about; a row is never cut.

    Examples
    --------
    >>> import nearjoin
    >>> degrees = {}
    >>> for block in nearjoin.eps_batches([[0.0], [1.0], [1.5]], 1.0):
    ...     for query, start, end in zip(block.queries, block.indptr, block.indptr[1:]):
    ...         degrees[int(query)] = int(end - start)
    >>> [degrees[row] for row in range(3)]
    [1, 2, 1]
    """
    left, right = points(x, y)
    eps = number("eps", eps)
    pairs = whole("batch_pairs", batch_pairs, 1)
    with options(metric, device, strategy, include_self, memory_limit, threads) as chosen:
        raw = _nearjoin.eps_batches(
            left, right, eps, pairs, bool(sorted), bool(return_distance), bool(half), chosen
        )
    return Batches(raw, lambda *part: iter([EpsBlock(*part)]))


def knn_batches(
    x: Any,
    k: int,
    y: Any = None,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    max_distance: Optional[float] = None,
    pad: bool = False,
    batch_pairs: int = 1_000_000,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
) -> Batches[KnnBlock]:
    """The ``k`` nearest points of each point, a block of rows at a time.

    Every point of ``x`` comes exactly once; the order of the points is not specified. The options
    are those of `knn_join` and `eps_batches`. Do not write to the points, or resize them, before the
    iterator is exhausted or closed.

    Examples
    --------
    >>> import nearjoin
    >>> with nearjoin.knn_batches([[0.0], [1.0], [3.0]], 1) as blocks:
    ...     nearest = {int(q): int(i[0]) for b in blocks for q, i in zip(b.queries, b.indices)}
    >>> [nearest[row] for row in range(3)]
    [1, 0, 1]
    """
    left, right = points(x, y)
    k = whole("k", k, 1)
    far = farthest(max_distance, left.dtype)
    pairs = whole("batch_pairs", batch_pairs, 1)
    with options(metric, device, strategy, include_self, memory_limit, threads) as chosen:
        raw = _nearjoin.knn_batches(left, right, k, far, bool(pad), pairs, chosen)

    # Padding takes room, too.
    most = max(pairs // k, 1)

    def dense(
        queries: NDArray[np.uint32],
        indptr: NDArray[np.uint64],
        indices: NDArray[np.uint32],
        distances: NDArray[Any],
    ) -> Iterator[KnnBlock]:
        if len(indices) == len(queries) * k:
            yield KnnBlock(queries, distances.reshape(-1, k), indices.reshape(-1, k))
            return
        ends = indptr.astype(np.intp)
        for first in range(0, len(queries), most):
            rows = queries[first : first + most]
            bounds = ends[first : first + most + 1]
            found = np.arange(k) < np.diff(bounds)[:, None]
            block = KnnBlock(
                rows,
                np.full(found.shape, np.inf, distances.dtype),
                np.full(found.shape, MISSING, np.uint32),
            )
            block.distances[found] = distances[bounds[0] : bounds[-1]]
            block.indices[found] = indices[bounds[0] : bounds[-1]]
            yield block

    return Batches(raw, dense)
