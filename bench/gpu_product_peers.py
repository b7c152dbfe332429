"""Times a matrix product in PyTorch on points that nearjoin-bench wrote.

usage: gpu_product_peers.py POINTS.npy EPS [--reps R]
       gpu_product_peers.py --versions

Prints a JSON object: the best time in seconds, from points in the host's memory to the number of ordered
pairs within EPS by |x|² + |y|² - 2xy in single precision, and that number. It is not exact.
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
    points = np.load(args.files[0])
    count(points, args.eps)
    best = None
    for _ in range(args.reps):
        start = time.perf_counter()
        found = count(points, args.eps)
        seconds = time.perf_counter() - start
        best = seconds if best is None else min(best, seconds)
    print(json.dumps({"seconds": best, "found": float(found)}), flush=True)


if __name__ == "__main__":
    main()
