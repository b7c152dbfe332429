"""The extension module: what the package calls."""

from collections.abc import Iterator
from os import PathLike
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[Any]
_Part = tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint32], Optional[_Floats]]

__version__: str

class Batches(Iterator[_Part]):
    def __iter__(self) -> Batches: ...
    def __next__(self) -> _Part: ...
    def close(self) -> None: ...

def eps_csr(
    x: _Floats,
    y: Optional[_Floats],
    eps: float,
    sorted: bool,
    distances: bool,
    half: bool,
    options: dict[str, Any],
) -> tuple[
    NDArray[np.uint64], NDArray[np.uint32], Optional[_Floats], dict[str, Any], dict[str, Any]
]: ...
def eps_count(x: _Floats, y: Optional[_Floats], eps: float, options: dict[str, Any]) -> int: ...
def eps_degrees(
    x: _Floats, y: Optional[_Floats], eps: float, options: dict[str, Any]
) -> NDArray[np.uint64]: ...
def eps_batches(
    x: _Floats,
    y: Optional[_Floats],
    eps: float,
    pairs: int,
    sorted: bool,
    distances: bool,
    half: bool,
    options: dict[str, Any],
) -> Batches: ...
def knn(
    x: _Floats,
    y: Optional[_Floats],
    k: int,
    max_distance: Optional[float],
    pad: bool,
    options: dict[str, Any],
) -> tuple[_Floats, NDArray[np.uint32], dict[str, Any], dict[str, Any]]: ...
def knn_batches(
    x: _Floats,
    y: Optional[_Floats],
    k: int,
    max_distance: Optional[float],
    pad: bool,
    pairs: int,
    options: dict[str, Any],
) -> Batches: ...
def groups(
    x: _Floats, eps: float, min_points: int, options: dict[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]: ...
def plan(
    x: _Floats,
    y: Optional[_Floats],
    eps: Optional[float],
    k: int,
    max_distance: Optional[float],
    pad: bool,
    options: dict[str, Any],
) -> dict[str, Any]: ...
def estimate_eps(
    x: _Floats, y: Optional[_Floats], neighbors: float, options: dict[str, Any]
) -> Optional[float]: ...
def info() -> dict[str, Any]: ...
def release_memory() -> int: ...
def read(
    path: Union[str, PathLike[str]],
    columns: Optional[list[str]],
    dtype: Optional[str],
    format: Optional[str],
    delimiter: Optional[str],
    header: Optional[bool],
) -> tuple[_Floats, list[str]]: ...
