"""The joins behind `nearjoin.spatial.KDTree`, with scipy's norms and radii."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._batches import eps_batches
from ._joins import eps_count, eps_degrees, eps_join, knn_join
from ._options import finite

_METRICS = {1.0: "l1", 2.0: "l2", np.inf: "linf"}


class Join:
    """A join of the points ``x`` with the points ``y``, before it is known within which radius."""

    def __init__(
        self, x: NDArray[Any], y: NDArray[Any], p: float, eps: float, workers: int = -1
    ) -> None:
        if eps > 0:
            raise NotImplementedError("approximate answers are not supported: eps must be 0")
        if not eps == 0:
            raise ValueError(f"eps must be 0, not {eps}")
        if not p >= 1:
            raise ValueError(f"p must be at least 1, not {p}")
        if p not in _METRICS:
            raise NotImplementedError(f"p = {p} is not supported: it must be 1, 2 or infinity")
        alone = x is y
        self.rows, self.columns = len(x), len(y)
        self.dtype = np.result_type(x, y)
        self.sides: dict[str, Any] = {"x": x, "y": None if alone else y, "include_self": alone}
        self.options: dict[str, Any] = {"metric": _METRICS[p], "threads": _threads(workers)}

    def in_type(self, radii: NDArray[np.float64]) -> NDArray[Any]:
        """Radii in the points' type, and -1 for those that nothing lies within."""
        with np.errstate(over="ignore"):
            return np.where(radii >= 0, radii, -1).astype(self.dtype)

    def within(self, radius: Any) -> dict[str, Any]:
        """The arguments of a join within a radius."""
        return {"eps": finite(radius, self.dtype), **self.sides, **self.options}

    def nearest(self, k: int, bound: float) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The k nearest that are nearer than the bound, as distances and indices."""
        # The engine's bound is inclusive: it has the next smaller number.
        with np.errstate(over="ignore"):
            limit = np.nextafter(self.dtype.type(bound), self.dtype.type(-np.inf))
        if not limit >= 0:
            distances = np.full((self.rows, k), np.inf, self.dtype)
            return distances, np.full(distances.shape, self.columns, np.intp)
        farthest = None if bound == np.inf else float(limit)
        distances, indices = knn_join(
            k=k, max_distance=farthest, pad=True, **self.sides, **self.options
        )
        # The index of a missing neighbour is larger than any other.
        return distances, np.minimum(indices, self.columns).astype(np.intp)

    def count(self, radius: Any) -> int:
        """The number of pairs within a radius."""
        return eps_count(**self.within(radius)) if radius >= 0 else 0

    def pairs(self, radius: float, half: bool = False) -> tuple[NDArray[Any], ...]:
        """All pairs within a radius, in ascending order, and their distances; with ``half`` each
        pair of one set once, without."""
        (limit,) = self.in_type(np.array([radius], np.float64))
        if limit < 0:
            none = np.empty(0, np.uint32)
            return (none, none) if half else (none, none, np.empty(0, self.dtype))
        arguments = self.within(limit)
        arguments["include_self"] &= not half
        return eps_join(sorted=True, return_distance=not half, half=half, **arguments).to_pairs()

    def blocks(
        self, radii: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """The neighbours of each row within its radius, in blocks: the rows, where each begins,
        and the neighbours."""
        limits = self.in_type(radii)
        largest = limits.max(initial=-1)
        if largest < 0:
            return
        differ = bool(np.any(limits != largest))
        for block in eps_batches(sorted=True, return_distance=differ, **self.within(largest)):
            starts, neighbors = block.indptr.astype(np.intp), block.indices
            if block.distances is not None:
                inside = block.distances <= np.repeat(limits[block.queries], np.diff(starts))
                starts = np.concatenate(([0], np.cumsum(inside)))[starts]
                neighbors = neighbors[inside]
            yield block.queries, starts, neighbors

    def lists(self, radii: NDArray[np.float64]) -> list[list[int]]:
        """The neighbours of each row within its radius."""
        lists: list[list[int]] = [[] for _ in radii]
        for rows, starts, neighbors in self.blocks(radii):
            numbers, bounds = neighbors.tolist(), starts.tolist()
            for row, start, stop in zip(rows.tolist(), bounds, bounds[1:]):
                lists[row] = numbers[start:stop]
        return lists

    def lengths(self, radii: NDArray[np.float64]) -> NDArray[np.intp]:
        """How many neighbours each row has within its radius."""
        limits = self.in_type(radii)
        if limits.size and limits[0] >= 0 and np.all(limits == limits[0]):
            return eps_degrees(**self.within(limits[0])).astype(np.intp)
        lengths = np.zeros(len(radii), np.intp)
        for rows, starts, _ in self.blocks(radii):
            lengths[rows] = np.diff(starts)
        return lengths

    def weigh(
        self, edges: NDArray[Any], ours: NDArray[np.float64], theirs: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The sum of products of weights over the pairs of each shell, which lies beyond one of
        the ascending edges and within the next."""
        shells = np.zeros(len(edges))
        if not len(edges) or edges[-1] < 0:
            return shells
        for block in eps_batches(return_distance=True, **self.within(edges[-1])):
            lengths = np.diff(block.indptr).astype(np.intp)
            products = np.repeat(ours[block.queries], lengths) * theirs[block.indices]
            shell = np.searchsorted(edges, np.asarray(block.distances))
            shells += np.bincount(shell, products, minlength=len(edges))
        return shells


def _threads(workers: int | None) -> int | None:
    """The engine's number of threads, where None is all, for scipy's ``workers``."""
    workers = 1 if workers is None else operator.index(workers)
    if workers == -1:
        return None
    if workers < 1:
        raise ValueError(f"workers must be -1, for all threads, or at least 1, not {workers}")
    return min(workers, os.cpu_count() or workers)
