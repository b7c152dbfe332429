"""Times scipy and scikit-learn on points that nearjoin-bench wrote.

usage: peers.py FILE POINTS DIMENSION EPS [--reps R]
                [--query-pairs] [--query-ball-point] [--sklearn]

FILE holds little-endian f64, row-major. One JSON object per line and peer: its name, the
best time in seconds with the tree's build included, and the ordered pairs it found, no
point with itself. Freeing an answer is outside the time.
"""

import argparse
import json
import time

import numpy as np


def query_pairs(points, eps):
    """Unordered pairs, each once, on one core: it has no parallel form."""
    from scipy.spatial import cKDTree

    return cKDTree(points).query_pairs(eps, output_type="ndarray")


def query_ball_point(points, eps):
    """A Python list for each point, on all cores."""
    from scipy.spatial import cKDTree

    return cKDTree(points).query_ball_point(points, eps, workers=-1, return_length=False)


def sklearn_graph(points, eps):
    """A sparse matrix, on all cores."""
    from sklearn.neighbors import radius_neighbors_graph

    return radius_neighbors_graph(points, eps, mode="connectivity", n_jobs=-1)


# Name, call, and how many ordered pairs its answer stands for.
PEERS = {
    "query_pairs": ("scipy query_pairs", query_pairs, lambda found, n: 2 * len(found)),
    "query_ball_point": (
        "scipy query_ball_point",
        query_ball_point,
        lambda found, n: sum(map(len, found)) - n,
    ),
    "sklearn": ("scikit-learn", sklearn_graph, lambda found, n: found.nnz),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("points", type=int)
    parser.add_argument("dimension", type=int)
    parser.add_argument("eps", type=float)
    parser.add_argument("--reps", type=int, default=1)
    for flag in PEERS:
        parser.add_argument("--" + flag.replace("_", "-"), action="store_true")
    args = parser.parse_args()

    points = np.fromfile(args.file, dtype="<f8").reshape(args.points, args.dimension)
    for flag, (name, call, ordered_pairs) in PEERS.items():
        if not getattr(args, flag):
            continue
        # Imports and thread pools are not part of the time.
        call(points[:100], args.eps)
        best = None
        for _ in range(args.reps):
            start = time.perf_counter()
            found = call(points, args.eps)
            seconds = time.perf_counter() - start
            best = seconds if best is None else min(best, seconds)
            pairs = int(ordered_pairs(found, args.points))
            del found
        print(json.dumps({"peer": name, "seconds": best, "pairs": pairs}), flush=True)


if __name__ == "__main__":
    main()
