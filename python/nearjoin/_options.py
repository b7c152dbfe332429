"""The options that all joins have."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union

import numpy as np

#: Called about twenty times a second with what is being done (``"planning"``, ``"indexing"``,
#: ``"counting"``, ``"joining"``), the share of it that is done (``None`` while unknown) and the
#: pairs found.
ProgressCallback = Callable[[str, Optional[float], int], object]
Progress = Union[None, bool, ProgressCallback]

METRICS = {
    "l2": "l2",
    "euclidean": "l2",
    "l1": "l1",
    "manhattan": "l1",
    "cityblock": "l1",
    "linf": "linf",
    "chebyshev": "linf",
}


def metric_of(name: str) -> str:
    """The engine's name of a metric."""
    try:
        return METRICS[name.lower()]
    except (KeyError, AttributeError):
        known = ", ".join(METRICS)
        raise ValueError(f"there is no metric {name!r}: choose one of {known}") from None


#: What the engine has a number for.
_MOST = (1 << 63) - 1


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least so much, whatever kind of integer it comes as."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise ValueError(f"{name} = {number} is out of range: it must be {least} or more")
    if number > _MOST:
        raise ValueError(f"{name} = {number} is out of range: it must be less than 2**63")
    return number


def number(name: str, value: Any) -> float:
    """A number, whatever kind it comes as."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {value!r}") from None
    except OverflowError:
        raise ValueError(f"{name} is out of range: float64 has no number for it") from None


def finite(radius: float, dtype: np.dtype[Any]) -> float:
    """A radius that the engine takes: no distance is larger than the largest number of its type, which
    stands for infinity."""
    return float(min(radius, np.finfo(dtype).max))


def farthest(value: Optional[Any], dtype: np.dtype[Any]) -> Optional[float]:
    """The argument max_distance; None where it excludes nothing."""
    if value is None:
        return None
    distance = number("max_distance", value)
    if not distance >= 0:
        raise ValueError(f"max_distance = {distance} is not a distance: it must be 0 or more")
    return None if distance > np.finfo(dtype).max else distance


@contextlib.contextmanager
def options(
    metric: str = "l2",
    device: str = "auto",
    strategy: str = "auto",
    include_self: bool = False,
    memory_limit: Optional[int] = None,
    threads: Optional[int] = None,
    progress: Progress = None,
) -> Iterator[dict[str, Any]]:
    """The options as the engine takes them; a bar of progress is there meanwhile."""
    with _told(progress) as told:
        yield {
            "metric": metric_of(metric),
            "device": str(device),
            "strategy": str(strategy),
            "include_self": bool(include_self),
            "memory_limit": None if memory_limit is None else whole("memory_limit", memory_limit, 0),
            "threads": None if threads is None else whole("threads", threads, 1),
            "progress": told,
        }


@contextlib.contextmanager
def _told(progress: Progress) -> Iterator[Optional[ProgressCallback]]:
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        if not callable(progress):
            raise TypeError(f"progress must be True, False, None or a function, not {progress!r}")
        yield progress
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            # It is a nicety: nobody should have to install anything for a join.
            yield None
            return
        layout = "{desc:<9} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        with tqdm(total=1.0, desc="planning", bar_format=layout, leave=False) as bar:

            def show(phase: str, share: Optional[float], pairs: int) -> None:
                bar.set_description_str(phase, refresh=False)
                if pairs:
                    bar.set_postfix_str(f"{pairs:,} pairs", refresh=False)
                bar.n = share or 0.0
                bar.refresh()

            yield show
