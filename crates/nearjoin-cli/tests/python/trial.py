"""Tries the program as a user of numpy, scipy, pandas, polars and pyarrow would.

usage: trial.py NEARJOIN

Points are made by each library in its own way of writing files; the program joins them; its
results are loaded with each library and compared with scipy's answer. The last line says how
many comparisons held.
"""

import io
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from scipy.sparse import coo_array, csr_array
from scipy.spatial import cKDTree

passed = 0


def check(what, ok):
    global passed
    if not ok:
        sys.exit(f"FAILED: {what}")
    passed += 1


def run(nearjoin, folder, *arguments, stdin=None):
    done = subprocess.run(
        [nearjoin, *map(str, arguments)], cwd=folder, input=stdin, capture_output=True
    )
    if done.returncode != 0:
        sys.exit(f"FAILED: nearjoin {arguments}: {done.stderr.decode()}")
    return done.stdout


def truth(left, right, eps):
    """Ordered pairs with their distances, ascending; no point with itself."""
    a, b = cKDTree(left), cKDTree(left if right is None else right)
    found = a.sparse_distance_matrix(b, eps, output_type="ndarray")
    if right is None:
        found = found[found["i"] != found["j"]]
    found = np.sort(found, order=["i", "j"])
    return found["i"], found["j"], found["v"]


def same(columns, expected, is_sorted=False):
    left, right, *distance = [np.asarray(column) for column in columns]
    order = slice(None) if is_sorted else np.lexsort((right, left))
    i, j, v = expected
    ok = np.array_equal(left[order], i) and np.array_equal(right[order], j)
    return ok and (not distance or np.allclose(distance[0][order], v, rtol=1e-12, atol=0))


def inputs(folder, points):
    """The same points in every way that a user may have them."""
    names = ["x", "y", "z"][: points.shape[1]]
    frame = pd.DataFrame(points, columns=names)
    np.save(folder / "c.npy", points)
    np.save(folder / "fortran.npy", np.asfortranarray(points))
    frame.to_parquet(folder / "pandas.parquet")
    pl.from_pandas(frame).write_parquet(folder / "polars.parquet")
    frame.to_feather(folder / "pandas.feather")
    pl.from_pandas(frame).write_ipc(folder / "polars.arrow", compression="zstd")
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_csv(folder / "bare.tsv", index=False, header=False, sep="\t")
    flat = pa.array(points.reshape(-1))
    lists = pa.table({"point": pa.FixedSizeListArray.from_arrays(flat, points.shape[1])})
    pq.write_table(lists, folder / "lists.parquet")
    pa.feather.write_feather(lists, folder / "lists.arrow")
    with pa.OSFile(str(folder / "stream.arrows"), "wb") as file:
        table = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    return [
        "c.npy", "fortran.npy", "pandas.parquet", "polars.parquet", "pandas.feather",
        "polars.arrow", "pandas.csv", "bare.tsv", "lists.parquet", "lists.arrow", "stream.arrows",
    ]


def self_joins(nearjoin, folder):
    points = np.random.default_rng(1).random((20_000, 3))
    eps = 0.05
    expected = truth(points, None, eps)
    for name in inputs(folder, points):
        run(nearjoin, folder, "within", name, "--eps", eps, "--distances", "-o", "o.parquet")
        table = pq.read_table(folder / "o.parquet")
        check(f"{name} → Parquet", same([table[c] for c in table.column_names], expected))
        check("row numbers are u32", table.schema.field("left").type == pa.uint32())

    source = "pandas.parquet"
    within = ["within", source, "--eps", eps, "--distances", "--sorted", "-o"]
    for out in ["o.parquet", "o.arrow", "o.csv", "o.npz"]:
        run(nearjoin, folder, *within, out)
    frames = {
        "pandas.read_parquet": pd.read_parquet(folder / "o.parquet"),
        "pandas.read_feather": pd.read_feather(folder / "o.arrow"),
        "pandas.read_csv": pd.read_csv(folder / "o.csv"),
        "polars.read_parquet": pl.read_parquet(folder / "o.parquet"),
        "polars.read_ipc": pl.read_ipc(folder / "o.arrow"),
        "polars.read_csv": pl.read_csv(folder / "o.csv"),
        "pyarrow.csv": pa.csv.read_csv(folder / "o.csv"),
        "pyarrow.feather": pa.feather.read_table(folder / "o.arrow"),
    }
    for name, frame in frames.items():
        columns = [frame[c] for c in ["left", "right", "distance"]]
        check(name, same(columns, expected, is_sorted=True))

    npz = np.load(folder / "o.npz")
    shape = tuple(npz["shape"])
    graph = csr_array((npz["distances"], npz["indices"], npz["indptr"]), shape=shape)
    graph.check_format(full_check=True)
    i, j, v = expected
    check("scipy takes the npz", abs(graph - coo_array((v, (i, j)), shape=shape)).max() < 1e-12)
    check("npz rows ascend", graph.has_sorted_indices)

    text = run(nearjoin, folder, "within", "-", "--eps", eps, "--format", "csv", "--half",
               stdin=(folder / "pandas.csv").read_bytes())
    half = pd.read_csv(io.BytesIO(text))
    check("pipes", len(half) * 2 == len(i) and (half["left"] < half["right"]).all())
    check("count", int(run(nearjoin, folder, "within", source, "--eps", eps, "--count")) == len(i))
    run(nearjoin, folder, "within", source, "--eps", eps, "--degrees", "-o", "d.parquet")
    degrees = pd.read_parquet(folder / "d.parquet")
    check("degrees", np.array_equal(degrees["neighbors"], np.bincount(i, minlength=len(points))))


def two_sets_with_ids(nearjoin, folder):
    rng = np.random.default_rng(2)
    stars, catalogue = rng.random((5_000, 2)), rng.random((8_000, 2)).astype(np.float32)
    keys = rng.permutation(len(catalogue)) + 10**12
    left = pd.DataFrame({"name": [f"star {k}" for k in range(len(stars))],
                         "x": stars[:, 0], "y": stars[:, 1]})
    right = pd.DataFrame({"source": keys, "X": catalogue[:, 0], "Y": catalogue[:, 1]})
    left.to_csv(folder / "stars.csv", index=False)
    right.to_parquet(folder / "catalogue.parquet")
    i, j, v = truth(stars, catalogue.astype(float), 0.01)
    for out, read in [("m.parquet", pd.read_parquet), ("m.csv", pd.read_csv),
                      ("m.arrow", pd.read_feather)]:
        run(nearjoin, folder, "within", "stars.csv", "catalogue.parquet", "--columns", "x,y",
            "--right-columns", "X,Y", "--id", "name", "--right-id", "source", "--eps", 0.01,
            "--sorted", "--distances", "-o", out)
        found = read(folder / out)
        check(f"{out}: names", list(found["left"]) == [f"star {k}" for k in i])
        check(f"{out}: keys", np.array_equal(found["right"], keys[j]))
        check(f"{out}: distances", np.allclose(found["distance"], v, rtol=1e-12, atol=0))


def nearest(nearjoin, folder):
    points, k = np.random.default_rng(3).random((20_000, 3)), 8
    np.save(folder / "p.npy", points)
    # No two points are equal: the nearest of each is itself.
    d, i = (found[:, 1:] for found in cKDTree(points).query(points, k + 1))
    for out in ["n.npz", "n.parquet", "n.arrow", "n.csv"]:
        run(nearjoin, folder, "knn", "p.npy", "-k", k, "--sorted", "-o", out)
    npz = np.load(folder / "n.npz")
    indices, distances = npz["indices"], npz["distances"]
    check("npz types", (indices.dtype, distances.dtype) == (np.uint32, np.float64))
    check("npz order", indices.flags.c_contiguous and distances.flags.c_contiguous)
    check("npz indices", indices.shape == (len(points), k) and np.array_equal(indices, i))
    check("npz distances", np.allclose(distances, d, rtol=1e-12, atol=0))
    tables = {
        "pandas.read_parquet": pd.read_parquet(folder / "n.parquet"),
        "polars.read_ipc": pl.read_ipc(folder / "n.arrow"),
        "pyarrow.csv": pa.csv.read_csv(folder / "n.csv"),
    }
    left, rank = np.repeat(np.arange(len(points)), k), np.tile(np.arange(1, k + 1), len(points))
    for name, table in tables.items():
        column = {c: np.asarray(table[c]) for c in ["left", "right", "rank", "distance"]}
        check(f"{name}: left", np.array_equal(column["left"], left))
        check(f"{name}: rank", np.array_equal(column["rank"], rank))
        check(f"{name}: right", np.array_equal(column["right"], i.reshape(-1)))
        check(f"{name}: distance", np.array_equal(column["distance"], distances.reshape(-1)))
    schema = pq.read_schema(folder / "n.parquet")
    check("columns", schema.names == ["left", "right", "rank", "distance"])
    check("ranks are u32", schema.field("rank").type == pa.uint32())

    run(nearjoin, folder, "knn", "p.npy", "-k", k, "-o", "any.parquet")
    found = pd.read_parquet(folder / "any.parquet")
    check("as found", found.groupby("left", sort=False)["rank"].apply(list).map(len).eq(k).all())
    table = pd.read_parquet(folder / "n.parquet")
    order = found.sort_values(["left", "rank"]).reset_index(drop=True)
    check("as found: the same rows", order.equals(table))

    queries, reach = np.random.default_rng(4).random((3_000, 3)).astype(np.float32), 0.04
    np.save(folder / "q.npy", queries)
    d, i = cKDTree(points).query(queries.astype(float), k, distance_upper_bound=reach)
    missing = np.isinf(d)
    check("some are missing", missing.any() and not missing.all())
    ask = ["knn", "q.npy", "p.npy", "-k", k, "--max-distance", reach]
    run(nearjoin, folder, *ask, "-o", "m.npz")
    npz = np.load(folder / "m.npz")
    padded = np.where(missing, 2**32 - 1, i)
    check("npz padding", np.array_equal(npz["indices"], padded))
    check("npz infinities", np.array_equal(np.isinf(npz["distances"]), missing))
    count = int(run(nearjoin, folder, *ask, "--count"))
    check("count of the near", count == (~missing).sum())


def made_points(nearjoin, folder):
    for shape in ["uniform", "exponential", "clustered", "lattice"]:
        for out in ["g.parquet", "g.arrow", "g.csv", "g.npy"]:
            run(nearjoin, folder, "gen", shape, "-n", "1e4", "-d", 2, "--seed", 3, "-o", out)
        made = [
            pd.read_parquet(folder / "g.parquet").to_numpy(),
            pl.read_ipc(folder / "g.arrow").to_numpy(),
            pl.read_csv(folder / "g.csv").to_numpy(),
            np.load(folder / "g.npy"),
        ]
        check(f"gen {shape}", all(np.array_equal(points, made[3]) for points in made))


def main():
    nearjoin = str(pathlib.Path(sys.argv[1]).resolve())
    for trial in [self_joins, two_sets_with_ids, nearest, made_points]:
        with tempfile.TemporaryDirectory() as folder:
            trial(nearjoin, pathlib.Path(folder))
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
