"""Neighbours as sparse graphs and as lists of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from sklearn import get_config

from .._results import signed
from ._base import Floats

CHUNK = 1 << 20
"""Pairs that are sorted at a time."""


class Rows(NamedTuple):
    """The neighbours of each point: those of point i stand from indptr[i] to indptr[i + 1]."""

    indptr: NDArray[np.int64]
    ids: NDArray[np.uint32]
    distances: Floats | None

    def graph(self, n_columns: int) -> Any:
        """The sparse matrix of distances, or of ones where there are none."""
        data = np.ones(len(self.ids)) if self.distances is None else self.distances
        indptr, ids = signed(self.indptr, self.ids, n_columns)
        # The setting is there since scikit-learn 1.9.
        sparray = get_config().get("sparse_interface") == "sparray"
        make = csr_array if sparray else csr_matrix
        return make((data, ids, indptr), shape=(len(indptr) - 1, n_columns))

    def sort_by_distance(self, *, own_first: bool = False) -> None:
        """Sort each row in place; ties keep their order, `own_first` starts row i with id i."""
        assert self.distances is not None
        start, n_rows = 0, len(self.indptr) - 1
        while start < n_rows:
            full = np.searchsorted(self.indptr, self.indptr[start] + CHUNK, side="right") - 1
            stop = max(int(full), start + 1)
            lengths = np.diff(self.indptr[start : stop + 1])
            pairs = slice(self.indptr[start], self.indptr[stop])
            ids, distances = self.ids[pairs], self.distances[pairs]
            rows = np.repeat(np.arange(start, stop), lengths)
            # Complex numbers are sorted by the real part, then by the imaginary one. As rows
            # are in order already, this is several times faster than np.lexsort.
            keys = np.empty(len(ids), dtype=np.complex128)
            keys.real = rows
            keys.imag = np.where(ids == rows, -1, distances) if own_first else distances
            order = np.argsort(keys, kind="stable")
            self.ids[pairs] = ids[order]
            self.distances[pairs] = distances[order]
            start = stop


def split_rows(values: NDArray[Any], indptr: NDArray[np.int64]) -> NDArray[np.object_]:
    """An array of arrays, one for each row."""
    rows = np.empty(len(indptr) - 1, dtype=object)
    ends = indptr.tolist()
    for row, (start, stop) in enumerate(zip(ends, ends[1:])):
        rows[row] = values[start:stop]
    return rows
