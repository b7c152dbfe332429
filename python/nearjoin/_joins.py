"""Joins whose answers fit the memory, and what is asked before them."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from . import _nearjoin
from ._options import Progress, farthest, number, options, whole
from ._points import points
from ._results import EpsResult, KnnResult, Plan


def eps_join(
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
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> EpsResult:
    """All pairs of points within a distance ``eps``.

    For each point of ``x`` its neighbours in ``y``, or in ``x`` itself. The answer is exact, and the
    same on every device and with any number of threads.

    Parameters
    ----------
    x, y : array_like, n × d
        Points: numpy arrays, data frames of pandas or polars, tables or lists of pyarrow, whatever
        numpy makes an array of. float32 stays float32 where both are. Without ``y``, ``x`` is joined
        with itself, and no point is its own neighbour; duplicates are neighbours of each other. An
        array is read where it is: do not write to it, or resize it, before the join has ended.
    eps : float
        The distance. A pair at exactly ``eps`` is within.
    metric : {"l2", "l1", "linf"}
        The distance that is meant; ``"euclidean"``, ``"manhattan"`` and ``"chebyshev"`` are the same.
    device : {"auto", "cpu", "gpu", "hybrid"}
        Where to run. ``"auto"`` takes what is expected to be fastest; ``"hybrid"`` both at once.
    strategy : {"auto", "brute", "directory", "grid", "ego", "product"}
        How to find candidates. The answer does not depend on it. ``"product"`` is a matrix product, for
        ``"l2"`` in many dimensions; with another metric it is ``"brute"``.
    include_self : bool
        Whether each point is its own neighbour where ``x`` is joined with itself.
    sorted : bool
        Whether the indices of each row ascend. Otherwise they are in no particular order.
    return_distance : bool
        Whether the distances are kept, too.
    half : bool
        Whether, where ``x`` is joined with itself, each pair comes once: under its smaller row. All
        neighbours are found first, so that half as much memory is needed on top for a while.
    memory_limit : int, optional
        Bytes that the join may use beside its input. By default, four fifths of what there is.
    threads : int, optional
        Threads that join. By default, one for each core.
    progress : bool or callable, optional
        ``True`` shows a bar of tqdm, where that is installed. A function is called now and then with
        the phase, the share of it that is done (or None) and the pairs found.

    Returns
    -------
    EpsResult

    Raises
    ------
    ValueError
        If a coordinate is NaN or infinite, or an argument is out of range.
    MemoryError
        If the answer does not fit the memory: see `eps_batches`.
    RuntimeError
        If ``device="gpu"`` and there is none. ``"hybrid"`` means the CPU then.

    Examples
    --------
    >>> import numpy as np
    >>> import nearjoin
    >>> x = np.array([[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]])
    >>> result = nearjoin.eps_join(x, 0.5, return_distance=True)
    >>> result.indices.tolist(), result.indptr.tolist(), result.distances.tolist()
    ([1, 0], [0, 1, 2, 2], [0.5, 0.5])
    """
    left, right = points(x, y)
    eps = number("eps", eps)
    half = bool(half) and right is None
    with options(
        metric, device, strategy, include_self, memory_limit, threads, progress
    ) as chosen:
        indptr, indices, distances, stats, planned = _nearjoin.eps_csr(
            left, right, eps, bool(sorted), bool(return_distance), half, chosen
        )
    return EpsResult(indptr, indices, distances, _shape(left, right), stats, Plan(**planned))


def eps_count(
    x: Any,
    eps: float,
    y: Any = None,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    half: bool = False,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> int:
    """How many pairs of points lie within a distance ``eps``. The options are those of `eps_join`.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.eps_count([[0.0], [1.0], [1.5]], 1.0)
    4
    >>> nearjoin.eps_count([[0.0], [1.0], [1.5]], 1.0, half=True)
    2
    """
    left, right = points(x, y)
    eps = number("eps", eps)
    half = bool(half) and right is None
    include_self = include_self and not half
    with options(
        metric, device, strategy, include_self, memory_limit, threads, progress
    ) as chosen:
        pairs = _nearjoin.eps_count(left, right, eps, chosen)
    return pairs // 2 if half else pairs


def eps_degrees(
    x: Any,
    eps: float,
    y: Any = None,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> NDArray[np.uint64]:
    """How many neighbours each point has within a distance ``eps``. The options are those of
    `eps_join`.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.eps_degrees([[0.0], [1.0], [1.5]], 1.0).tolist()
    [1, 2, 1]
    """
    left, right = points(x, y)
    eps = number("eps", eps)
    with options(
        metric, device, strategy, include_self, memory_limit, threads, progress
    ) as chosen:
        return _nearjoin.eps_degrees(left, right, eps, chosen)


def knn_join(
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
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> KnnResult:
    """The ``k`` nearest points of each point.

    For each point of ``x`` its nearest in ``y``, or in ``x`` itself. The answer is exact, and the
    same on every device and with any number of threads: neighbours come in the order of their
    distances, before the last rounding (for ``"l2"``, of the sums of squares), and then of their rows.

    Parameters
    ----------
    x, y, metric, device, include_self, memory_limit, threads, progress
        As for `eps_join`.
    k : int
        Neighbours of each point.
    strategy : {"auto", "brute", "grid", "tree", "product", "ranges"}
        How to find candidates. The answer does not depend on it. ``"product"`` is as for `eps_join`.
    max_distance : float, optional
        No neighbours farther away; one at exactly this distance is a neighbour. Rows that have fewer
        than ``k`` are padded.
    pad : bool
        Whether ``k`` may be more than there are points: rows are padded then. Otherwise that is a
        ValueError.

    Returns
    -------
    KnnResult
        Unpacks as ``distances, indices``.

    Examples
    --------
    >>> import nearjoin
    >>> distances, indices = nearjoin.knn_join([[0.0], [1.0], [3.0]], 2)
    >>> indices.tolist()
    [[1, 2], [0, 2], [1, 0]]
    >>> distances.tolist()
    [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]
    """
    left, right = points(x, y)
    k = whole("k", k, 1)
    far = farthest(max_distance, left.dtype)
    with options(
        metric, device, strategy, include_self, memory_limit, threads, progress
    ) as chosen:
        distances, indices, stats, planned = _nearjoin.knn(left, right, k, far, bool(pad), chosen)
    return KnnResult(distances, indices, _shape(left, right), stats, Plan(**planned))


def estimate_eps(
    x: Any, neighbors: float = 32, y: Any = None, *, metric: str = "l2"
) -> float:
    """The distance within which points have so many neighbours on average, by a sample.

    Examples
    --------
    >>> import numpy as np
    >>> import nearjoin
    >>> x = np.random.default_rng(0).random((10_000, 2))
    >>> eps = nearjoin.estimate_eps(x, neighbors=16)
    >>> bool(8 < nearjoin.eps_degrees(x, eps).mean() < 32)
    True
    """
    left, right = points(x, y)
    wanted = number("neighbors", neighbors)
    if not wanted > 0:
        raise ValueError(f"neighbors = {neighbors} is out of range: it must be more than 0")
    with options(metric) as chosen:
        eps = _nearjoin.estimate_eps(left, right, wanted, chosen)
    if eps is None:
        raise ValueError(
            f"no distance gives {neighbors} neighbours on average: there are only "
            f"{_shape(left, right)[1]} points"
        )
    return eps


def plan(
    x: Any,
    y: Any = None,
    *,
    eps: Optional[float] = None,
    k: Optional[int] = None,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    max_distance: Optional[float] = None,
    pad: bool = False,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
) -> Plan:
    """What `eps_join` would do, given ``eps``, or `knn_join`, given ``k``; ``print(plan)`` explains it.

    Examples
    --------
    >>> import numpy as np
    >>> import nearjoin
    >>> plan = nearjoin.plan(np.random.default_rng(0).random((1000, 2)), eps=0.1, device="cpu")
    >>> plan.device
    'cpu'
    >>> print(plan)  # doctest: +ELLIPSIS
    ε = 0.1...
    """
    if (eps is None) == (k is None):
        raise TypeError("a plan needs either eps or k")
    if k is None and (max_distance is not None or pad):
        raise TypeError("max_distance and pad are for plans with k")
    left, right = points(x, y)
    within = None if eps is None else number("eps", eps)
    far = farthest(max_distance, left.dtype)
    nearest = 1 if k is None else whole("k", k, 1)
    with options(metric, device, strategy, include_self, memory_limit, threads) as chosen:
        return Plan(**_nearjoin.plan(left, right, within, nearest, far, bool(pad), chosen))


def _shape(left: NDArray[Any], right: Optional[NDArray[Any]]) -> tuple[int, int]:
    return len(left), len(left if right is None else right)
