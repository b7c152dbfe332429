"""Points from files, and what the machine has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

from . import _nearjoin


def read(
    path: Union[str, PathLike[str]],
    columns: Union[None, str, int, Sequence[Union[str, int]]] = None,
    *,
    dtype: Any = None,
    format: Optional[str] = None,
    delimiter: Optional[str] = None,
    header: Optional[bool] = None,
) -> NDArray[Any]:
    """Points from a Parquet, Arrow, CSV or NPY file, read by all cores.

    Ctrl-C is heeded when the file has been read.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str or int, optional
        The columns that hold coordinates, in this order: names, or numbers from 0 in a CSV file
        without a header and in an NPY file. By default all, and all must be numbers; or a column of
        lists, if it is the only one.
    dtype : {"float32", "float64"}, optional
        The type of the coordinates. By default float32 where every column is, else float64.
    format : {"parquet", "arrow", "csv", "npy"}, optional
        By default, what the file's name or its first bytes say.
    delimiter : str, optional
        What separates the fields of a CSV file. By default, what its first lines show.
    header : bool, optional
        Whether a CSV file has a header. By default, what its first line shows.

    Returns
    -------
    ndarray, n × d

    Raises
    ------
    OSError
        If the file cannot be opened or read.
    ValueError
        If it is damaged, a column is missing or not numeric, or a value is missing, not finite, beyond
        the range of the type, or a whole number that the type does not have. The message names the
        row and the column.

    Examples
    --------
    >>> import os, tempfile
    >>> import nearjoin
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "stars.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("name,x,y\\nMira,0,1.5\\nDeneb,2,3\\n")
    ...     nearjoin.read(path, columns=["x", "y"])
    array([[0. , 1.5],
           [2. , 3. ]])
    """
    if columns is not None:
        columns = [columns] if isinstance(columns, (str, int)) else list(columns)
        wrong = [column for column in columns if not isinstance(column, (str, int))]
        if wrong:
            raise TypeError(f"columns must be names or numbers, not {wrong[0]!r}")
    named = None if columns is None else [str(column) for column in columns]
    kind = None if dtype is None else np.dtype(dtype).name
    if kind not in (None, "float32", "float64"):
        raise ValueError(f"dtype {kind} is not for points: float32 or float64")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise ValueError(f"the delimiter {delimiter!r} is not one character")
    if header not in (None, False, True):
        raise TypeError(f"header must be True, False or None, not {header!r}")
    header = None if header is None else bool(header)
    path = os.fsdecode(path) if isinstance(path, bytes) else path
    return _nearjoin.read(path, named, kind, format, delimiter, header)[0]


def info() -> dict[str, Any]:
    """What there is on this machine: threads, vector instructions, memory, and a GPU or why there is
    none.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.info()["version"] == nearjoin.__version__
    True
    """
    return _nearjoin.info()


def release_memory() -> int:
    """Gives memory that was kept for later calls back to the system, and tells how many bytes it was.

    Calls keep up to 1 GiB of what they no longer use, and of arrays that are gone: to get fresh
    memory takes longer than a small join.

    Examples
    --------
    >>> import nearjoin
    >>> nearjoin.release_memory() >= 0
    True
    """
    return _nearjoin.release_memory()
