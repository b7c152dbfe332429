"""Estimators with the interface of scikit-learn that find neighbours with nearjoin.

Each has the name, the parameters and the results of its namesake in
:mod:`sklearn.neighbors` or :mod:`sklearn.cluster`, so that changing the import is
enough. What differs:

- The metrics are ``'euclidean'`` (``'l2'``), ``'manhattan'`` (``'cityblock'``,
  ``'l1'``), ``'chebyshev'`` (``'linf'``), and ``'minkowski'`` with ``p`` 1, 2 or
  infinity. Points are dense.
- ``algorithm``, ``leaf_size`` and ``metric_params`` are accepted, so that calls need
  no change. The first two have no effect; the last has to be ``None``.
- ``n_jobs=None`` means all cores, as ``-1`` does; scikit-learn takes one. Where
  something around the estimator already runs in parallel, such as a grid search,
  give it ``n_jobs=1``.
- ``device`` says where the work is done: ``'auto'``, ``'cpu'``, ``'gpu'`` or
  ``'hybrid'``.
- Points in ``float32`` are not converted, and their distances are ``float32``.
- Among neighbours at the same distance those with smaller indices come first, and a
  point that is left out of its own neighbours is left out by its index: its
  duplicates stay.
- Fitting keeps the points and builds nothing. Each call joins all its queries at
  once, so ask for many points in one call.

Examples
--------
>>> from nearjoin.sklearn import DBSCAN
>>> DBSCAN(eps=3, min_samples=2).fit_predict([[1, 2], [2, 2], [2, 3], [8, 7], [8, 8], [25, 80]])
array([ 0,  0,  0,  1,  1, -1])
"""

from __future__ import annotations

from ._dbscan import DBSCAN
from ._neighbors import NearestNeighbors
from ._transformers import KNeighborsTransformer, RadiusNeighborsTransformer

__all__ = ["DBSCAN", "KNeighborsTransformer", "NearestNeighbors", "RadiusNeighborsTransformer"]
