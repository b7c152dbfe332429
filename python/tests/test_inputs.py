"""Points in whatever users have them in, and what is refused."""

import array
import pathlib

import numpy as np
import pytest

import nearjoin

TRUTH = nearjoin.eps_join(np.array([[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]]), 0.5).indices.tolist()
POINTS = np.array([[0.0, 0.0], [0.3, 0.4], [5.0, 5.0]])


def joined(points, eps=0.5):
    return nearjoin.eps_join(points, eps, return_distance=True)


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_layouts_give_the_same(self, dtype):
        x = np.random.default_rng(0).random((200, 3)).astype(dtype)
        wide = np.zeros((400, 7), dtype)
        wide[::2, 1:6:2] = x
        read_only = x.copy()
        read_only.flags.writeable = False
        unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(dtype).reshape(x.shape)
        layouts = {
            "rows": x,
            "columns": np.asfortranarray(x),
            "strided": wide[::2, 1:6:2],
            "backwards": x[::-1][::-1],
            "read-only": read_only,
            "unaligned": unaligned,
            "other bytes": x.astype(x.dtype.newbyteorder()),
        }
        truth = joined(x, 0.2)
        for name, layout in layouts.items():
            result = joined(layout, 0.2)
            assert result.distances.dtype == dtype, name
            assert np.array_equal(np.sort(result.indices), np.sort(truth.indices)), name

    def test_float32_stays_float32_unless_the_other_is_wider(self):
        narrow = POINTS.astype(np.float32)
        assert nearjoin.knn_join(narrow, 1, narrow).distances.dtype == np.float32
        assert nearjoin.knn_join(narrow, 1, POINTS).distances.dtype == np.float64
        assert nearjoin.knn_join(POINTS.astype(np.float16), 1).distances.dtype == np.float32

    @pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, bool])
    def test_whole_numbers_are_converted(self, dtype):
        result = joined(np.array([[0, 0], [1, 0], [0, 1]], dtype), 1)
        assert result.distances.dtype == np.float64 and len(result) == 4

    def test_whole_numbers_beyond_float64_are_refused(self):
        big = np.array([[0, 2**53], [0, 2**53 + 1]])
        with pytest.raises(ValueError, match="row 1, column 1 is 9007199254740993"):
            joined(big)
        assert len(joined(big[:1])) == 0

    def test_an_array_is_not_copied(self):
        """The engine reads what stands in the array when it is asked."""
        from nearjoin._points import points

        x = np.ones((10, 2), np.float32)
        assert np.shares_memory(points(x)[0], x)

    def test_interfaces(self):
        class Interface:
            __array_interface__ = POINTS.__array_interface__

        buffer = memoryview(array.array("d", POINTS.ravel())).cast("B").cast("d", POINTS.shape)
        for points in (Interface(), buffer, POINTS.tolist(), np.asmatrix(POINTS)):
            assert joined(points).indices.tolist() == TRUTH

    def test_masked_arrays_need_all_values(self):
        assert joined(np.ma.masked_array(POINTS)).indices.tolist() == TRUTH
        with pytest.raises(ValueError, match="masked"):
            joined(np.ma.masked_array(POINTS, mask=POINTS > 4))


class TestFrames:
    def test_pandas(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(POINTS, columns=["x", "y"])
        assert joined(frame).indices.tolist() == TRUTH
        assert joined(frame.astype("float32")).distances.dtype == np.float32
        assert joined(frame.assign(x=frame.x.astype("float32"))).distances.dtype == np.float64
        assert joined(frame.convert_dtypes()).indices.tolist() == TRUTH
        with pytest.raises(ValueError, match="column 't'.*9007199254740993"):
            joined(frame.assign(t=2**53 + 1))
        with pytest.raises(TypeError, match="x has values that are not numbers"):
            joined(frame.assign(name="a"))
        with pytest.raises(ValueError, match="row 1, column 0 is NaN"):
            joined(frame.assign(x=[1, None, 2]))

    def test_polars(self):
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({"x": POINTS[:, 0], "y": POINTS[:, 1]})
        assert joined(frame).indices.tolist() == TRUTH
        assert joined(frame.cast(polars.Float32)).distances.dtype == np.float32
        lists = polars.Series("v", POINTS.tolist(), dtype=polars.Array(polars.Float64, 2))
        assert joined(lists).indices.tolist() == TRUTH
        assert joined(polars.Series("v", POINTS.tolist())).indices.tolist() == TRUTH
        assert joined(lists.to_frame()).indices.tolist() == TRUTH
        assert joined(frame.select("x"), 1).shape == (3, 3)
        with pytest.raises(ValueError, match="column 't'.*9007199254740993"):
            joined(frame.with_columns(t=polars.lit(2**53 + 1)))
        with pytest.raises(TypeError, match="collect"):
            joined(frame.lazy())

    def test_pyarrow(self):
        pa = pytest.importorskip("pyarrow")
        flat = pa.array(POINTS.ravel())
        fixed = pa.FixedSizeListArray.from_arrays(flat, 2)
        table = pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1]})
        for points in (
            fixed,
            pa.chunked_array([fixed[:1], fixed[1:]]),
            pa.table({"v": fixed}),
            pa.array(POINTS.tolist()),
            table,
            table.to_batches()[0],
        ):
            assert joined(points).indices.tolist() == TRUTH
        assert joined(fixed[1:]).indptr.tolist() == [0, 0, 0]
        narrow = table.cast(pa.schema([("x", pa.float32()), ("y", pa.float32())]))
        assert joined(narrow).distances.dtype == np.float32
        with pytest.raises(ValueError, match="column 't'.*9007199254740993"):
            joined(table.append_column("t", [[2**53 + 1] * 3]))
        with pytest.raises(ValueError, match="column 'x' has 1 missing"):
            joined(pa.table({"x": [1.0, None]}))
        with pytest.raises(TypeError, match="column 'n' has values of type string"):
            joined(pa.table({"n": ["a"]}))
        with pytest.raises(ValueError, match="2 lengths"):
            joined(pa.array([[1.0], [1.0, 2.0]]))
        with pytest.raises(ValueError, match="missing values"):
            joined(pa.array([[1.0, None]]))


class TestRefused:
    @pytest.mark.parametrize(
        "points, kind, message",
        [
            ([1.0, 2.0], ValueError, r"reshape\(-1, 1\)"),
            (np.zeros((2, 2, 2)), ValueError, "has 3 dimensions"),
            (np.zeros((2, 0)), ValueError, "dimension 0"),
            (np.zeros((1, 4097)), ValueError, "between 1 and 4096"),
            ([[1.0], [1.0, 2.0]], ValueError, "x is not an array of points"),
            ([[1j]], TypeError, "complex"),
            ([["a"]], TypeError, "type <U1"),
            (np.array([["2020-01-01"]], "M8[D]"), TypeError, "datetime64"),
            ([[np.nan, 0.0]], ValueError, "row 0, column 0 is NaN"),
            ([[0.0, -np.inf]], ValueError, "row 0, column 1 is -inf"),
            ([[None]], ValueError, "is NaN"),
            (np.array([["1"]], object), TypeError, "not numbers: '1'"),
            (np.array([[2**63 - 1]]), ValueError, "no number for"),
        ],
    )
    def test_points(self, points, kind, message):
        with pytest.raises(kind, match=message):
            joined(points)

    def test_sparse_points(self):
        sparse = pytest.importorskip("scipy.sparse")
        with pytest.raises(TypeError, match="sparse"):
            joined(sparse.csr_array(POINTS))

    def test_which_of_two_is_said(self):
        bad = np.full((1, 2), np.nan)
        with pytest.raises(ValueError, match="^x: row 0"):
            nearjoin.eps_join(bad, 1, POINTS)
        with pytest.raises(ValueError, match="^y: row 0"):
            nearjoin.knn_join(POINTS, 1, bad)
        with pytest.raises(ValueError, match="x have dimension 2 and those of y dimension 1"):
            nearjoin.eps_join(POINTS, 1, POINTS[:, :1])

    @pytest.mark.parametrize(
        "options, kind, message",
        [
            ({"eps": -1}, ValueError, "eps = -1.0 is not a distance"),
            ({"eps": np.inf}, ValueError, "eps = inf"),
            ({"eps": "far"}, TypeError, "eps must be a number"),
            ({"eps": "1.5"}, TypeError, "eps must be a number"),
            ({"eps": 10**400}, ValueError, "eps is out of range"),
            ({"metric": "cosine"}, ValueError, "no metric 'cosine'"),
            ({"metric": None}, ValueError, "no metric None"),
            ({"device": "tpu"}, ValueError, "no device called \"tpu\""),
            ({"strategy": "tree"}, ValueError, "strategy tree is not for this join"),
            ({"threads": 0}, ValueError, "threads = 0"),
            ({"threads": 1.5}, TypeError, "threads must be a whole number"),
            ({"threads": 5000}, ValueError, "1 to 1024"),
            ({"memory_limit": -1}, ValueError, "memory_limit = -1"),
            ({"memory_limit": 2**70}, ValueError, "less than 2\\*\\*63"),
            ({"progress": 3}, TypeError, "progress must be"),
        ],
    )
    def test_options(self, options, kind, message):
        with pytest.raises(kind, match=message):
            nearjoin.eps_join(POINTS, **{"eps": 0.5, **options})

    def test_k(self):
        for k, kind in ((0, ValueError), (-1, ValueError), (2**40, ValueError), (1.0, TypeError)):
            with pytest.raises(kind, match="k "):
                nearjoin.knn_join(POINTS, k)
        for far in (-1, np.nan):
            with pytest.raises(ValueError, match="max_distance"):
                nearjoin.knn_join(POINTS, 1, max_distance=far)
        assert nearjoin.knn_join(POINTS, 2, max_distance=np.inf).indices.max() == 2
        with pytest.raises(TypeError, match="for plans with k"):
            nearjoin.plan(POINTS, eps=1, pad=True)
        with pytest.raises(ValueError, match="min_points = 0"):
            nearjoin.dbscan(POINTS, 1, 0)
        with pytest.raises(ValueError, match="batch_pairs"):
            nearjoin.eps_batches(POINTS, 1, batch_pairs=0)

    def test_names_of_types_are_those_of_numpy(self):
        with pytest.raises(ValueError, match="float64 cannot compute"):
            nearjoin.knn_join([[1e-300, 0], [2e-300, 0], [1e300, 0]], 1)
        assert "float64" in str(nearjoin.plan(POINTS, eps=1))

    def test_a_device_that_is_not_there(self):
        if nearjoin.info()["gpu"]:
            pytest.skip("there is a GPU")
        with pytest.raises(RuntimeError, match="the device gpu cannot be used"):
            nearjoin.eps_join(POINTS, 0.5, device="gpu")
        assert nearjoin.eps_join(POINTS, 0.5, device="hybrid").plan.device == "cpu"

    def test_memory(self):
        x = np.zeros((3000, 2))
        with pytest.raises(MemoryError, match="raise memory_limit.*eps_batches"):
            nearjoin.eps_join(x, 1, memory_limit=1 << 20)
        with pytest.raises(MemoryError, match="raise memory_limit"):
            nearjoin.eps_join(np.random.default_rng(0).random((5000, 2)), 0.01, memory_limit=100)
        many = np.random.default_rng(0).random((100_000, 2))
        index = nearjoin.plan(many, eps=0.01, device="cpu").index_bytes
        with pytest.raises(MemoryError, match="raise memory_limit$"):
            nearjoin.dbscan(many, 0.01, 5, device="cpu", memory_limit=index + 1000)
        blocks = nearjoin.eps_batches(x, 1, memory_limit=1 << 20, batch_pairs=10_000)
        assert sum(len(block.indices) for block in blocks) == 3000 * 2999

    def test_an_error_of_a_batch_comes_when_it_is_asked_for(self):
        with pytest.raises(ValueError, match="NaN"):
            next(nearjoin.eps_batches([[np.nan]], 1))


class TestFiles:
    def test_what_numpy_wrote(self, tmp_path):
        np.save(tmp_path / "points.npy", POINTS.astype(np.float32))
        points = nearjoin.read(tmp_path / "points.npy")
        assert points.dtype == np.float32 and points.flags.writeable
        assert np.array_equal(points, POINTS.astype(np.float32))
        assert nearjoin.read(str(tmp_path / "points.npy"), columns=[1]).shape == (3, 1)
        assert nearjoin.read(tmp_path / "points.npy", dtype=float).dtype == np.float64

    def test_tables(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        table = pa.table({"name": ["a", "b", "c"], "x": POINTS[:, 0], "y": POINTS[:, 1]})
        pyarrow.parquet.write_table(table, tmp_path / "points.parquet")
        points = nearjoin.read(tmp_path / "points.parquet", columns=["x", "y"])
        assert np.array_equal(points, POINTS)
        assert nearjoin.read(tmp_path / "points.parquet", columns="y").shape == (3, 1)

    def test_text(self, tmp_path: pathlib.Path):
        path = tmp_path / "points.txt"
        path.write_text("0;1\n2;3\n")
        points = nearjoin.read(path, format="csv", delimiter=";", header=False)
        assert points.tolist() == [[0, 1], [2, 3]]

    def test_what_is_wrong(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="missing.csv") as refused:
            nearjoin.read(tmp_path / "missing.csv")
        assert refused.value.errno == 2 and refused.value.filename.endswith("missing.csv")
        path = tmp_path / "points.csv"
        path.write_text("x,y\n0,1\n2,?\n")
        with pytest.raises(ValueError, match=r'row 1 \(line 3\), column "y"'):
            nearjoin.read(path)
        with pytest.raises(ValueError, match="no format called"):
            nearjoin.read(path, format="xls")
        with pytest.raises(ValueError, match="one character"):
            nearjoin.read(path, delimiter="ab")
        with pytest.raises(ValueError, match="int32"):
            nearjoin.read(path, dtype="int32")
        with pytest.raises(ValueError) as refused:
            nearjoin.read(path, columns=["z"])
        assert "--" not in str(refused.value)
