"""Groups of points that hang together."""

from __future__ import annotations

from typing import Any, Literal, Optional, Union, overload

import numpy as np
from numpy.typing import NDArray

from . import _nearjoin
from ._options import Progress, number, options, whole
from ._points import points


@overload
def dbscan(
    x: Any,
    eps: float,
    min_points: int,
    *,
    metric: str = ...,
    device: str = ...,
    strategy: str = ...,
    return_core: Literal[False] = ...,
    memory_limit: Optional[int] = ...,
    threads: Optional[int] = ...,
    progress: Progress = ...,
) -> NDArray[np.int64]: ...


@overload
def dbscan(
    x: Any,
    eps: float,
    min_points: int,
    *,
    metric: str = ...,
    device: str = ...,
    strategy: str = ...,
    return_core: Literal[True],
    memory_limit: Optional[int] = ...,
    threads: Optional[int] = ...,
    progress: Progress = ...,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]: ...


def dbscan(
    x: Any,
    eps: float,
    min_points: int,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    return_core: bool = False,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> Union[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Clusters by DBSCAN, in memory that does not grow with the number of neighbours.

    A point with ``min_points`` points within ``eps``, itself included, is a core. Cores within
    ``eps`` of each other are in one cluster. Other points are in that of the core within ``eps`` that
    has the smallest row, or are noise.

    Parameters
    ----------
    x, eps, metric, device, strategy, memory_limit, threads, progress
        As for `eps_join`.
    min_points : int
        Points within ``eps`` that make a core, itself included.
    return_core : bool
        Whether to return which points are cores, too.

    Returns
    -------
    labels : ndarray of int64
        The cluster of each point, numbered by their first cores, and −1 for noise.
    core : ndarray of bool
        Whether each point is a core, with ``return_core``.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.dbscan([[0.0], [5.0], [0.5], [1.0]], eps=0.5, min_points=3).tolist()
    [0, -1, 0, 0]
    """
    left, _ = points(x)
    eps, least = number("eps", eps), whole("min_points", min_points, 1)
    with options(metric, device, strategy, False, memory_limit, threads, progress) as chosen:
        labels, core = _nearjoin.groups(left, eps, least, chosen)
    return (labels, core) if return_core else labels


def components(
    x: Any,
    eps: float,
    *,
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> NDArray[np.int64]:
    """Connected components: points with a way between them over pairs within ``eps``.

    Also known as friends-of-friends. They are numbered from 0 by their first points. The options are
    those of `eps_join`.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.components([[0.0], [5.0], [0.5], [1.0]], eps=0.5).tolist()
    [0, 1, 0, 0]
    """
    labels = dbscan(
        x,
        eps,
        1,
        metric=metric,
        device=device,
        strategy=strategy,
        memory_limit=memory_limit,
        threads=threads,
        progress=progress,
    )
    return labels
