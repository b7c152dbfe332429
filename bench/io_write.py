"""What it costs to write a join as Parquet, beside pyarrow in the same run.

    cargo build --release -p nearjoin-io --example write_time
    python bench/io_write.py --binary target/release/examples/write_time

The join of exponential points runs once without writing and once into a file. Then pyarrow
writes the same columns in the same row groups: each is read back from our file outside the
clock, and written inside it with pyarrow's defaults. Needs pyarrow, and room for both files.
"""

import argparse
import os
import subprocess
import tempfile
import time

import pyarrow
import pyarrow.parquet as pq

ROW_GROUP = 1 << 20


def ours(options, output, *more):
    command = [options.binary, "--points", str(options.points), "--epsilon", str(options.epsilon)]
    command += ["--memory", str(options.memory), "--ids", options.ids, "--output", output, *more]
    if options.distances:
        command.append("--distances")
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    seconds, pairs, size, before, peak = lines[-1].split()
    return float(seconds), int(pairs), int(size), int(before), int(peak)


def theirs(source, target, sync):
    """Seconds of pyarrow's writer, and the bytes that it made."""
    seconds = 0.0
    file = pq.ParquetFile(source)
    writer = pq.ParquetWriter(target, file.schema_arrow)
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        start = time.perf_counter()
        writer.write_table(table, row_group_size=ROW_GROUP)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    writer.close()
    if sync:
        with open(target, "rb") as written:
            os.fsync(written.fileno())
    seconds += time.perf_counter() - start
    return seconds, os.path.getsize(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/examples/write_time")
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--epsilon", type=float, default=0.0004)
    parser.add_argument("--distances", action="store_true")
    parser.add_argument("--ids", choices=["none", "int", "string"], default="none")
    parser.add_argument("--memory", type=int, default=256, help="MiB that our writer may buffer")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", help="where the files go; default: a temporary folder")
    parser.add_argument("--no-sync", dest="sync", action="store_false",
                        help="do not have pyarrow's file reach the disk, as ours does")
    options = parser.parse_args()

    print("| join alone, s | join and write, s | of it writing, s | pyarrow, s | ratio | "
          "our bytes a pair | pyarrow's | peak beside the input, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        output, copy = os.path.join(folder, "ours.parquet"), os.path.join(folder, "theirs.parquet")
        for _ in range(options.repeat):
            alone, pairs, *_ = ours(options, output, "--format", "none")
            total, same, size, before, peak = ours(options, output, "--format", "parquet")
            assert pairs == same
            seconds, copied = theirs(output, copy, options.sync)
            rows = pq.ParquetFile(copy).metadata.num_rows
            assert rows == pairs, (rows, pairs)
            writing = total - alone
            print(f"| {alone:.2f} | {total:.2f} | {writing:.2f} | {seconds:.2f} | "
                  f"{total / seconds:.2f} | {size / pairs:.2f} | {copied / pairs:.2f} | "
                  f"{peak - before} |", flush=True)
            os.remove(output)
            os.remove(copy)
    print(f"\n{pairs:,} pairs; {os.cpu_count()} cores; pyarrow {pyarrow.__version__}; "
          "ratio: join and write, over pyarrow's writing alone.")


if __name__ == "__main__":
    main()
