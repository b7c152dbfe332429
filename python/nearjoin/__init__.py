"""Exact neighbours of whole sets of points, on all cores and on a GPU.

Which pairs of points lie within a distance ε (`eps_join`), and which k are nearest (`knn_join`),
for every point at once. The answer is exact, and the same on every machine and device.

>>> import numpy as np
>>> import nearjoin
>>> stars = np.array([[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]])
>>> nearjoin.eps_join(stars, 0.5)
<EpsResult: 2 pairs of 3 × 3 points>
>>> distances, indices = nearjoin.knn_join(stars, 1)
>>> indices.ravel().tolist()
[1, 0, 1]

`nearjoin.spatial` has scipy's ``KDTree``, and `nearjoin.sklearn` has estimators of scikit-learn.
"""

from ._batches import Batches, eps_batches, knn_batches
from ._files import info, read, release_memory
from ._groups import components, dbscan
from ._joins import eps_count, eps_degrees, eps_join, estimate_eps, knn_join, plan
from ._nearjoin import __version__
from ._results import MISSING, EpsBlock, EpsResult, KnnBlock, KnnResult, Plan

__all__ = [
    "MISSING",
    "Batches",
    "EpsBlock",
    "EpsResult",
    "KnnBlock",
    "KnnResult",
    "Plan",
    "__version__",
    "components",
    "dbscan",
    "eps_batches",
    "eps_count",
    "eps_degrees",
    "eps_join",
    "estimate_eps",
    "info",
    "knn_batches",
    "knn_join",
    "plan",
    "read",
    "release_memory",
]
