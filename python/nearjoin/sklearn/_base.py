"""What all estimators share: their parameters, and points as nearjoin takes them."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_scalar

from .._options import METRICS

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn before 1.6

    def validate_data(estimator: Any, X: Any, **options: Any) -> Any:
        return estimator._validate_data(X, **options)


Floats = NDArray[Any]
"""Points or distances, in float32 or float64."""

MINKOWSKI = {1: "manhattan", 2: "euclidean", math.inf: "chebyshev"}
"""The metric that 'minkowski' is for a value of `p`."""

ALGORITHMS = ("auto", "ball_tree", "kd_tree", "brute")
DEVICES = ("auto", "cpu", "gpu", "hybrid")


class JoinEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator with the parameters that every join has."""

    algorithm: str
    leaf_size: int
    metric: str
    p: float | None
    metric_params: dict[str, Any] | None
    n_jobs: int | None
    device: str

    def _check_parameters(self) -> None:
        """Raise the error of the first parameter that cannot be used."""
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        check_choice("device", self.device, DEVICES)
        check_scalar(self.leaf_size, "leaf_size", Integral, min_val=1)
        if self.n_jobs is not None:
            check_scalar(self.n_jobs, "n_jobs", Integral)
            if self.n_jobs == 0:
                raise ValueError("n_jobs is 0: give the number of threads, or None for all cores.")
        if self.metric_params:
            raise ValueError(
                f"metric_params={self.metric_params!r} cannot be used: the metrics of nearjoin "
                "have no parameters. Leave it out, and give p by itself."
            )
        self._effective_metric()

    def _effective_metric(self) -> str:
        """The metric, with that which it is in place of 'minkowski'."""
        metric: Any = self.metric
        if metric == "minkowski":
            p = 2 if self.p is None else self.p
            if p not in MINKOWSKI:
                raise ValueError(f"p={p!r} cannot be used: p is 1, 2 or infinity in nearjoin.")
            return MINKOWSKI[p]
        if isinstance(metric, str) and metric in METRICS:
            return metric
        if isinstance(metric, str) and metric == "precomputed":
            raise ValueError(
                "metric='precomputed' cannot be used: nearjoin finds neighbours of points, "
                "not in a matrix of distances. Give the points, or use scikit-learn's estimator."
            )
        names = ", ".join(repr(name) for name in (*METRICS, "minkowski"))
        raise ValueError(f"metric={metric!r} is not there. The metrics are {names}.")

    def _options(self, metric: str) -> dict[str, Any]:
        """What nearjoin's functions are told."""
        n_jobs = self.n_jobs
        if n_jobs is None or n_jobs == -1:
            threads = None
        else:
            threads = int(effective_n_jobs(n_jobs)) if n_jobs < 0 else int(n_jobs)
        return {"metric": metric, "device": self.device, "threads": threads}

    def _read_points(self, X: Any, *, reset: bool) -> Floats:
        """Points in rows, of float32 or float64, checked as scikit-learn does."""
        points: Floats = validate_data(
            self, X, dtype=[np.float64, np.float32], order="C", reset=reset
        )
        return points


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise an error if the value of a parameter is none of its choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not there. There are {listed}.")


def check_radius(name: str, value: Any) -> float:
    """A distance to find neighbours within, which may be infinite."""
    check_scalar(value, name, Real, min_val=0)
    if math.isnan(value):
        raise ValueError(f"{name} is not a number.")
    return float(value)
