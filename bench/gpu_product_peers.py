"""Times matrix products in PyTorch on points that nearjoin-bench wrote.

usage: gpu_product_peers.py POINTS.npy --eps EPS [--reps R]
       gpu_product_peers.py POINTS.npy DISTANCES.npy [--reps R]
       gpu_product_peers.py --versions

Prints a JSON object. With EPS: the best time in seconds, from points in the host's memory to the number of
ordered pairs within EPS by |x|² + |y|² - 2xy in single precision, and that number. With DISTANCES, which has k to
a row: the best time to ids and distances of the k nearest there, by the same and top-k; and the largest share by
which a distance differs. Neither is exact.
"""

import argparse
import json
import time

import numpy as np

ROWS = 8192


def count(points, eps):
    """Pairs of different points, in blocks of rows."""
    import torch

    x = torch.from_numpy(points).cuda()
    norms = (x * x).sum(1)
    found = torch.zeros((), dtype=torch.int64, device="cuda")
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        squares = norms[start : start + ROWS, None] + norms[None] - 2 * (rows @ x.T)
        found += (squares <= eps * eps).sum()
    return int(found) - len(x)


def nearest(points, k):
    """Ids and distances of the k nearest, and of the point itself, in blocks of rows."""
    import torch

    x = torch.from_numpy(points).cuda()
    norms = (x * x).sum(1)
    found = []
    for start in range(0, len(x), ROWS):
        rows = x[start : start + ROWS]
        squares = norms[start : start + ROWS, None] + norms[None] - 2 * (rows @ x.T)
        found.append(squares.topk(k + 1, largest=False))
    squares = torch.cat([block.values for block in found])
    ids = torch.cat([block.indices for block in found])
    return squares.clamp(min=0).sqrt().cpu().numpy(), ids.cpu().numpy()


def difference(distances, expected):
    """The largest share by which a distance differs. The nearest of a row is taken for the point itself."""
    theirs, ours = distances[:, 1:].astype("f8"), expected.astype("f8")
    gap = np.abs(theirs - ours)
    return float(np.max(gap / np.maximum(np.maximum(theirs, ours), 1e-300)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--eps", type=float, default=0.0)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--versions", action="store_true")
    args = parser.parse_args()
    if args.versions:
        import torch

        assert torch.cuda.is_available()
        print(f"PyTorch {torch.__version__}")
        return
    points, *distances = map(np.load, args.files)
    run = (lambda: nearest(points, distances[0].shape[1])) if distances else (lambda: count(points, args.eps))
    run()
    best = None
    for _ in range(args.reps):
        start = time.perf_counter()
        found = run()
        seconds = time.perf_counter() - start
        best = seconds if best is None else min(best, seconds)
    found = difference(found[0], distances[0]) if distances else float(found)
    print(json.dumps({"seconds": best, "found": found}), flush=True)


if __name__ == "__main__":
    main()
