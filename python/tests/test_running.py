"""Joins while they run: signals, progress, threads, processes, and what is left of them."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import numpy as np
import pytest

import nearjoin

HEAVY = np.random.default_rng(0).random((400_000, 2))

#: Far less than what a heavy join takes on any machine, and far more than its interruption.
SOON = 30


def heavy(**options):
    """Takes minutes."""
    points = np.tile(HEAVY, (5, 1))
    options = {"device": "cpu", "strategy": "brute", "threads": 2, **options}
    return nearjoin.eps_count(points, 0.3, **options)


def press_ctrl_c(*_):
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_stops_a_join():
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        heavy(progress=press_ctrl_c)
    assert time.monotonic() - began < SOON


def test_ctrl_c_stops_an_iterator():
    began = time.monotonic()
    blocks = nearjoin.eps_batches(np.tile(HEAVY, (5, 1)), 0.3, device="cpu", strategy="brute")
    next(blocks)
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()
        for _ in blocks:
            pass
    blocks.close()
    assert time.monotonic() - began < SOON


def test_ctrl_c_does_not_wait_for_an_index():
    """Points are sorted without a look at the monitor."""
    many = np.random.default_rng(4).random((6_000_000, 3), np.float32)
    options = dict(device="cpu", strategy="tree", threads=1)
    for at in (0.0, 0.3):
        pressed = []

        def press(phase, *_, after=time.monotonic() + at, pressed=pressed):
            if time.monotonic() >= after and not pressed:
                pressed.append(time.monotonic())
                press_ctrl_c()

        with pytest.raises(KeyboardInterrupt):
            nearjoin.knn_join(many, 8, progress=press, **options)
        assert time.monotonic() - pressed[0] < SOON


def test_an_iterator_may_be_closed_while_another_thread_waits_for_it():
    # Of few pairs, so that none of the blocks is full for minutes.
    few = np.random.default_rng(5).random((2_000_000, 2))
    blocks = nearjoin.eps_batches(few, 0, device="cpu", strategy="brute", batch_pairs=10**9)
    seen = []
    waiting = threading.Thread(target=lambda: seen.extend(blocks))
    waiting.start()
    time.sleep(0.2)
    blocks.close()
    waiting.join(SOON)
    assert not waiting.is_alive() and seen == []


def test_progress_is_told_and_may_stop_the_join():
    calls = []

    def note(phase, share, pairs):
        calls.append((phase, share, pairs))
        if len(calls) == 5:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        heavy(progress=note)
    assert len(calls) == 5
    for phase, share, pairs in calls:
        assert phase in ("waiting", "planning", "indexing", "counting", "joining")
        assert share is None or 0 <= share <= 1
        assert pairs >= 0


def test_progress_shows_a_bar(monkeypatch):
    tqdm = pytest.importorskip("tqdm.auto").tqdm
    shown = []

    def refresh(bar, *_, **__):
        shown.append((bar.desc, bar.n))
        if [phase for phase, _ in shown].count("counting") == 2:
            press_ctrl_c()

    monkeypatch.setattr(tqdm, "refresh", refresh)
    with pytest.raises(KeyboardInterrupt):
        heavy(progress=True)
    assert "counting" in {phase for phase, _ in shown}
    assert all(0 <= share <= 1 for _, share in shown)


def test_other_threads_of_python_go_on():
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.005):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    began = time.monotonic()
    nearjoin.eps_count(HEAVY[:100_000], 0.2, device="cpu", strategy="brute")
    taken = time.monotonic() - began
    done.set()
    ticker.join()
    during = [at for at in ticks if began <= at <= began + taken]
    assert len(during) > min(taken / 0.005, 1000) / 20


def test_several_threads_join_at_once(device):
    x = np.random.default_rng(1).random((20_000, 3))
    expected = nearjoin.eps_count(x, 0.05, device=device)
    found = [None] * 6

    def join(at):
        result = nearjoin.eps_join(x, 0.05, device=device, threads=1 + at % 3)
        near = nearjoin.knn_join(x, 4, device=device)
        blocks = nearjoin.eps_batches(x, 0.05, device=device)
        in_blocks = sum(len(block.indices) for block in blocks)
        found[at] = (len(result), in_blocks, near.indices.sum())

    threads = [threading.Thread(target=join, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {(expected, expected, found[0][2])}


def threads_here():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="no list of threads")
def test_an_iterator_leaves_no_thread_behind(device):
    nearjoin.eps_count(HEAVY[:50_000], 0.01, device=device)  # The engine's pool is there by now.
    before = threads_here()
    options = dict(device=device, batch_pairs=1000)
    blocks = nearjoin.eps_batches(HEAVY, 0.01, **options)
    next(blocks)
    del blocks
    with nearjoin.eps_batches(HEAVY, 0.01, **options) as blocks:
        next(blocks)
    assert list(blocks) == []
    nearjoin.eps_batches(HEAVY, 0.01, **options).close()
    for _ in nearjoin.knn_batches(HEAVY[:5000], 2, **options):
        pass
    gc.collect()
    # A thread that has ended is off the list a moment later.
    for _ in range(100):
        if threads_here() <= before:
            break
        time.sleep(0.02)
    assert threads_here() <= before


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no account of memory")
def test_memory_is_given_back():
    x = HEAVY[:200_000].copy()

    def join():
        result = nearjoin.eps_join(x, 0.01, return_distance=True)
        assert result.indices.nbytes + result.distances.nbytes > 100_000_000

    join()
    before = resident()
    for _ in range(5):
        join()
    assert resident() - before < 100_000_000


def test_points_live_as_long_as_an_iterator_needs_them():
    x = np.random.default_rng(3).random((100_000, 2))
    pairs = nearjoin.eps_count(x, 0.01)
    before = sys.getrefcount(x)
    blocks = nearjoin.eps_batches(x, 0.01, batch_pairs=1000)
    assert sys.getrefcount(x) > before
    del x
    gc.collect()
    assert sum(len(block.indices) for block in blocks) == pairs


def test_an_array_outlives_its_result():
    indices = nearjoin.eps_join(HEAVY, 0.002).indices
    total = int(indices.sum(dtype=np.uint64))
    gc.collect()
    nearjoin.eps_join(HEAVY, 0.002)
    assert int(indices.sum(dtype=np.uint64)) == total


def count_in_child(x, expected):
    blocks = nearjoin.eps_batches(x, 0.05)
    assert sum(len(block.indices) for block in blocks) == expected
    assert nearjoin.eps_count(x, 0.05, threads=2) == expected
    assert len(nearjoin.eps_join(x, 0.05, half=True)) * 2 == expected
    with pytest.raises(RuntimeError, match="spawn"):
        nearjoin.eps_count(x, 0.05, device="gpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_joins_on_its_own(tmp_path):
    x = np.random.default_rng(1).random((5000, 2))
    expected = nearjoin.eps_count(x, 0.05)
    np.save(tmp_path / "x.npy", x)
    blocks = nearjoin.eps_batches(x, 0.05, batch_pairs=100)
    next(blocks)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            count_in_child(x, expected)
            assert np.array_equal(nearjoin.read(tmp_path / "x.npy"), x)
            with pytest.raises(RuntimeError, match="forked"):
                next(blocks)
            del blocks
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done and status == 0


def test_a_pool_of_processes_joins():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        tasks = [([[0.0], [1.0], [1.5]], 1.0)] * 4
        assert pool.starmap(nearjoin.eps_count, tasks) == [4] * 4


def test_a_process_that_ends_in_the_middle_of_an_iterator_ends():
    program = """
        import numpy as np, nearjoin
        blocks = nearjoin.eps_batches(np.random.default_rng(0).random((200_000, 2)), 0.05)
        next(blocks)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], timeout=60, capture_output=True
    )
    assert done.returncode == 0, done.stderr
