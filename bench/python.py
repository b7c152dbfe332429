"""What the Python package costs over the engine, and DBSCAN beside scikit-learn's.

usage: python.py overhead [--device DEVICE] [--points N]
       python.py dbscan [--points N] [--only nearjoin|sklearn]

The package must be installed, scikit-learn too for `dbscan`. Each clustering runs in a process of
its own, whose peak of memory is its.
"""

import argparse
import os
import resource
import subprocess
import sys
import time

import numpy as np

import nearjoin


def uniform(n, d, dtype):
    return (np.random.default_rng(1).random((n, d)) * 100).astype(dtype)


def clustered(n):
    """A hundred round clusters of many sizes, and a tenth of the points anywhere."""
    rng = np.random.default_rng(2)
    sizes = rng.exponential(1, 100)
    cluster = rng.choice(100, n, p=sizes / sizes.sum())
    points = rng.random((100, 2))[cluster] * 100 + rng.normal(0, 1, (n, 2))
    points[rng.permutation(n)[: n // 10]] = rng.random((n // 10, 2)) * 100
    return points


def overhead(device, n):
    """Milliseconds around the engine: what Python waited, less what the engine says it took."""
    cases = [
        ("within 0.2, 2-D float64", lambda x: nearjoin.eps_join(x, 0.2, device=device), 2, np.float64),
        ("within 0.2, 2-D float32", lambda x: nearjoin.eps_join(x, 0.2, device=device), 2, np.float32),
        ("within 4, 4-D float64", lambda x: nearjoin.eps_join(x, 4, device=device), 4, np.float64),
        ("8 nearest, 2-D float64", lambda x: nearjoin.knn_join(x, 8, device=device), 2, np.float64),
        ("8 nearest, 2-D float32", lambda x: nearjoin.knn_join(x, 8, device=device), 2, np.float32),
    ]
    print("| join | device | engine, ms | around it, ms | share |")
    print("| --- | --- | --- | --- | --- |")
    for name, join, d, dtype in cases:
        x = uniform(n, d, dtype)
        join(x)
        around, within = [], []
        for _ in range(9):
            began = time.perf_counter()
            result = join(x)
            taken = time.perf_counter() - began
            engine = result.stats["seconds"]["total"]
            around.append(1e3 * (taken - engine))
            within.append(1e3 * engine)
            device_used = result.stats["device"]
            del result
        extra, engine = np.median(around), np.median(within)
        print(f"| {name} | {device_used} | {engine:.2f} | {extra:.2f} | {extra / engine:.2%} |")


def cluster(which, n):
    x = clustered(n)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    if which == "nearjoin":
        labels = nearjoin.dbscan(x, 0.2, 10, device="cpu")
    else:
        from sklearn.cluster import DBSCAN

        began = time.perf_counter()
        labels = DBSCAN(eps=0.2, min_samples=10, n_jobs=-1).fit_predict(x)
    taken = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    noise = int((labels == -1).sum())
    print(
        f"| {which} | {taken:.3f} | {(peak - base) / 1024:.0f} | {peak / 1024:.0f} "
        f"| {labels.max() + 1} | {noise} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["overhead", "dbscan"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--points", type=int)
    parser.add_argument("--only", choices=["nearjoin", "sklearn"])
    asked = parser.parse_args()
    if asked.what == "overhead":
        overhead(asked.device, asked.points or 2_000_000)
    elif asked.only:
        cluster(asked.only, asked.points or 1_000_000)
    else:
        print(f"{os.cpu_count()} cores, {asked.points or 1_000_000} points", flush=True)
        print("| DBSCAN | seconds | MiB more than the points | MiB in all | clusters | noise |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        for which in ("nearjoin", "nearjoin", "sklearn"):
            again = [sys.executable, __file__, "dbscan", "--only", which]
            subprocess.run([*again, "--points", str(asked.points or 1_000_000)], check=True)


if __name__ == "__main__":
    main()
