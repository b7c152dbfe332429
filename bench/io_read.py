#!/usr/bin/env python3
"""Reading points: nearjoin-io beside numpy, pyarrow and polars, in one run on one machine.

Makes files of uniform points in a temporary folder, reads each of them several times with its
peer and with the example `read_time`, both warm and in one process each, and prints the best
times and their ratio as a markdown table and as JSON. Needs numpy, pyarrow and polars.

    cargo build --release -p nearjoin-io --example read_time
    python3 bench/io_read.py --reader target/release/examples/read_time
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="the best of this many counts")
    parser.add_argument("--reader", default="target/release/examples/read_time")
    parser.add_argument("--folder", help="keep the files here, and use those that are there")
    parser.add_argument("--only", nargs="*", help="cases to run, by name")
    return parser.parse_args()


def best(repeat, work):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
        del result
    return min(times)


def main():
    args = parse_args()
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    names = [f"x{i}" for i in range(args.columns)]

    def points():
        return np.random.default_rng(1).random((args.rows, args.columns)) * 100

    def table():
        return pa.table({name: column.copy() for name, column in zip(names, points().T)})

    def few_values():
        whole = np.random.default_rng(2).integers(0, 1000, (args.rows, args.columns)) / 8
        return pa.table({name: column.copy() for name, column in zip(names, whole.T)})

    cases = {
        # name: (file, how it is made, how the peer reads it, the peer)
        "npy": ("a.npy", lambda f: np.save(f, points()), np.load, "numpy"),
        "parquet": ("a.parquet", lambda f: pq.write_table(table(), f), pq.read_table, "pyarrow"),
        "parquet, one row group": (
            "one.parquet",
            lambda f: pq.write_table(table(), f, row_group_size=args.rows),
            pq.read_table,
            "pyarrow",
        ),
        "parquet, dictionary": (
            "dictionary.parquet",
            lambda f: pq.write_table(few_values(), f),
            pq.read_table,
            "pyarrow",
        ),
        "arrow, lz4": (
            "a.feather",
            lambda f: feather.write_feather(table(), f),
            lambda f: feather.read_table(f, memory_map=False),
            "pyarrow",
        ),
        "csv": ("a.csv", lambda f: pl.from_arrow(table()).write_csv(f), pl.read_csv, "polars"),
    }

    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or temporary
        os.makedirs(folder, exist_ok=True)
        for name, (file, make, read, peer) in cases.items():
            if args.only and name not in args.only:
                continue
            path = os.path.join(folder, file)
            if not os.path.exists(path):
                make(path)
            theirs = best(args.repeat, lambda: read(path))
            ours = float(
                subprocess.run(
                    [args.reader, path, str(args.repeat)], check=True, stdout=subprocess.PIPE
                ).stdout
            )
            results.append(
                {
                    "format": name,
                    "bytes": os.path.getsize(path),
                    "ours_s": ours,
                    "peer": peer,
                    "peer_s": theirs,
                    "ratio": ours / theirs,
                }
            )

    print("| format | MB | ours, s | peer | peer, s | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in results:
        print(
            f"| {r['format']} | {r['bytes'] / 1e6:.0f} | {r['ours_s']:.3f} "
            f"| {r['peer']} | {r['peer_s']:.3f} | {r['ratio']:.2f} |"
        )
    print()
    print(
        json.dumps(
            {
                "rows": args.rows,
                "columns": args.columns,
                "repeat": args.repeat,
                "cores": os.cpu_count(),
                "machine": platform.machine(),
                "versions": {
                    "numpy": np.__version__,
                    "pyarrow": pa.__version__,
                    "polars": pl.__version__,
                },
                "results": results,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
