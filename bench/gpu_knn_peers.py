"""Times CuPy's kd-tree on points that nearjoin-bench wrote.

usage: gpu_knn_peers.py POINTS.npy DISTANCES.npy [--reps R]
       gpu_knn_peers.py --versions

Prints a JSON object: the best time in seconds, from points in the host's memory to ids and distances
in arrays there that are used again, with the tree's build included; and the largest share by which a
distance differs from those of DISTANCES, which has k to a row.
"""

import argparse
import json
import time

import numpy as np


def query(points, k, answer):
    """One more than k is asked for: the point itself is one of them."""
    import cupy
    from cupyx.scipy.spatial import KDTree

    on_device = cupy.asarray(points)
    distances, ids = KDTree(on_device).query(on_device, k + 1)
    if not answer:
        answer += [np.empty(found.shape, found.dtype) for found in (distances, ids)]
    for found, array in zip((distances, ids), answer):
        cupy.asnumpy(found, out=array)


def difference(distances, expected):
    """The largest share by which a distance differs. The nearest of a row is the point itself."""
    assert distances.shape == (expected.shape[0], expected.shape[1] + 1)
    worst = 0.0
    for start in range(0, len(distances), 100_000):
        part = slice(start, start + 100_000)
        theirs = np.sort(distances[part].astype("f8"), axis=1)[:, 1:]
        ours = expected[part].astype("f8")
        gap = np.abs(theirs - ours)
        share = np.divide(gap, np.maximum(theirs, ours), out=np.zeros_like(gap), where=gap != 0)
        worst = max(worst, float(np.nan_to_num(share, nan=np.inf).max()))
    return worst


def versions():
    import platform

    import cupy
    from cupyx.scipy.spatial import KDTree  # noqa: F401

    cuda = cupy.cuda.runtime.runtimeGetVersion()
    assert cupy.cuda.runtime.getDeviceCount() > 0
    python = platform.python_version()
    print(f"Python {python}, numpy {np.__version__}, cupy {cupy.__version__}, CUDA {cuda // 1000}.{cuda % 1000 // 10}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--versions", action="store_true")
    args = parser.parse_args()
    if args.versions:
        return versions()

    points, expected = map(np.load, args.files)
    k = expected.shape[1]
    # Kernels are compiled, and memory is obtained, before the time begins.
    query(points[: 2 * k + 2], k, [])
    answer = []
    query(points, k, answer)
    best = None
    for _ in range(args.reps):
        start = time.perf_counter()
        query(points, k, answer)
        seconds = time.perf_counter() - start
        best = seconds if best is None else min(best, seconds)
    print(json.dumps({"seconds": best, "found": difference(answer[0], expected)}), flush=True)


if __name__ == "__main__":
    main()
