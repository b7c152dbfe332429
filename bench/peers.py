"""Times scipy, scikit-learn, pykdtree, FAISS and products in numpy on points that nearjoin-bench wrote.

usage: peers.py POINTS.npy PEER VALUE [--reps R] [--threads T] [--distances DISTANCES.npy]

PEER is one of WITHIN, and VALUE then ε, or one of NEAREST, and VALUE then k, or matmul, and VALUE
then the rows of a matrix. Prints a JSON object: the best time in seconds with the tree's build
included, and what was found. For ε that is the ordered pairs, no point with itself; for k the
largest share by which a distance differs from those of --distances, k to a row; for a matrix the
multiply-adds. Freeing an answer is outside the time. Without T threads are all that there are; with
it, the environment must tell the pools that are made when libraries are loaded.
"""

import argparse
import json
import time

import numpy as np


# How many threads calls are asked for: -1 for all.
THREADS = -1


def query_pairs(points, eps):
    """Unordered pairs, each once, on one core: it has no parallel form."""
    from scipy.spatial import cKDTree

    return cKDTree(points).query_pairs(eps, output_type="ndarray")


def query_ball_point(points, eps):
    """A Python list for each point, on all cores."""
    from scipy.spatial import cKDTree

    return cKDTree(points).query_ball_point(points, eps, workers=THREADS, return_length=False)


def sklearn_graph(points, eps):
    """A sparse matrix, on all cores."""
    from sklearn.neighbors import radius_neighbors_graph

    return radius_neighbors_graph(points, eps, mode="connectivity", n_jobs=THREADS)


def sklearn_radius(points, eps):
    """An array of ids for each point."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(radius=eps, algorithm="brute", n_jobs=THREADS).fit(points)
    return model.radius_neighbors(points, return_distance=False)


def faiss_flat(points):
    """Points in f32, which is all that it has, and what compares with all of them, on all cores."""
    import faiss

    if THREADS > 0:
        faiss.omp_set_num_threads(THREADS)
    points = points.astype(np.float32, copy=False)
    index = faiss.IndexFlatL2(points.shape[1])
    index.add(points)
    return points, index


def faiss_range(points, eps):
    """Offsets, squared distances and ids."""
    points, index = faiss_flat(points)
    return index.range_search(points, eps * eps)


# The call, and how many ordered pairs its answer stands for.
WITHIN = {
    "query-pairs": (query_pairs, lambda found, n: 2 * len(found)),
    "query-ball-point": (query_ball_point, lambda found, n: sum(map(len, found)) - n),
    "sklearn-graph": (sklearn_graph, lambda found, n: found.nnz),
    "sklearn-radius": (sklearn_radius, lambda found, n: sum(map(len, found)) - n),
    "faiss-range": (faiss_range, lambda found, n: len(found[2]) - n),
}


# Of the nearest, one more is asked for: the point itself is one of them. A call gives the
# points that its rows belong to (None: all in their order), distances and ids.


def scipy_query(points, k):
    """As people call it, on all cores."""
    from scipy.spatial import cKDTree

    return None, *cKDTree(points).query(points, k + 1, workers=THREADS)


def quick_tree(points):
    """The tree that is built soonest, and is asked no slower."""
    from scipy.spatial import cKDTree

    return cKDTree(points, balanced_tree=False, compact_nodes=False)


def scipy_tree_order(points, k):
    """Queries in the order of the leaves find in the cache what the last one left there."""
    tree = quick_tree(points)
    return tree.indices, *tree.query(points[tree.indices], k + 1, workers=THREADS)


def pykdtree_query(points, k):
    """As people call it, on all cores."""
    from pykdtree.kdtree import KDTree

    return None, *KDTree(points).query(points, k + 1)


def pykdtree_tree_order(points, k):
    """It does not tell the order of its leaves; that of another tree serves as well."""
    from pykdtree.kdtree import KDTree

    order = quick_tree(points).indices
    return order, *KDTree(points).query(points[order], k + 1)


def sklearn_nearest(points, k, algorithm):
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=k + 1, algorithm=algorithm, n_jobs=THREADS)
    return None, *model.fit(points).kneighbors(points)


def faiss_nearest(points, k):
    points, index = faiss_flat(points)
    squared, ids = index.search(points, k + 1)
    return None, np.sqrt(np.maximum(squared, 0)), ids


NEAREST = {
    "scipy": scipy_query,
    "scipy-tree-order": scipy_tree_order,
    "pykdtree": pykdtree_query,
    "pykdtree-tree-order": pykdtree_tree_order,
    "sklearn-tree": lambda points, k: sklearn_nearest(points, k, "kd_tree"),
    "sklearn-brute": lambda points, k: sklearn_nearest(points, k, "brute"),
    "faiss": faiss_nearest,
}


def matmul(points, rows):
    """What multiplies points, over and over if there are fewer, with others, into one matrix."""
    left = np.resize(points, (rows, points.shape[1]))
    # Of the same memory, numpy would compute only half.
    right = np.ascontiguousarray(left.T)
    product = np.empty((rows, rows), points.dtype)
    return lambda: np.matmul(left, right, out=product)


def difference(found, expected):
    """The largest share by which a distance differs. Rows begin with the point itself."""
    order, distances, _ = found
    assert distances.shape == (expected.shape[0], expected.shape[1] + 1)
    worst = 0.0
    for start in range(0, len(distances), 100_000):
        part = slice(start, start + 100_000)
        theirs = distances[part, 1:]
        ours = expected[part] if order is None else expected[order[part]]
        gap = np.abs(theirs - ours)
        share = np.divide(gap, np.maximum(theirs, ours), out=np.zeros_like(gap), where=gap != 0)
        worst = max(worst, float(np.nan_to_num(share, nan=np.inf).max()))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("points")
    parser.add_argument("peer", choices=[*WITHIN, *NEAREST, "matmul"])
    parser.add_argument("value", type=float)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--distances")
    args = parser.parse_args()
    global THREADS
    THREADS = args.threads

    points = np.load(args.points)
    if args.peer in WITHIN:
        call, ordered_pairs = WITHIN[args.peer]
        value = args.value
        judge = lambda found: int(ordered_pairs(found, len(points)))
    elif args.peer in NEAREST:
        call = NEAREST[args.peer]
        value = int(args.value)
        expected = np.load(args.distances)
        judge = lambda found: difference(found, expected)
    else:
        product = matmul(points, int(args.value))
        call = lambda points, value: product()
        value = None
        judge = lambda found: found.size * points.shape[1]

    # Imports, thread pools and first pages are not part of the time.
    call(points[:100], value)
    best = None
    for _ in range(args.reps):
        start = time.perf_counter()
        answer = call(points, value)
        seconds = time.perf_counter() - start
        best = seconds if best is None else min(best, seconds)
        found = judge(answer)
        del answer
    print(json.dumps({"seconds": best, "found": found}), flush=True)


if __name__ == "__main__":
    main()
