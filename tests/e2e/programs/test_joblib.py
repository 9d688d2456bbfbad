"""joblib's Parallel on a pool of Clutch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest

PREFACE = """
import multiprocessing, operator, os, time
import joblib
from joblib import Parallel, delayed
import clutch, clutch.joblib

clutch.joblib.register()

def pid_of(_=0):
    return os.getpid()

def fail_at(number, at):
    if number == at:
        raise ValueError(number)
    return number

def begin(word):
    os.environ["BEGUN"] = word

def nested_by_name(number):
    return Parallel(n_jobs=2, backend="clutch")(delayed(abs)(n) for n in range(3))

def nested(number):
    inner = Parallel(n_jobs=2)(delayed(pid_of)() for _ in range(3))
    return os.getpid(), inner

"""

CALLS = """
if __name__ == "__main__":
    with joblib.parallel_config(backend="clutch", n_jobs=2):
        assert Parallel()(delayed(operator.mul)(number, 2) for number in range(100)) == list(range(0, 200, 2))
        first = set(Parallel()(delayed(pid_of)() for _ in range(20)))
        assert os.getpid() not in first and len(first) <= 2
        assert len(first.union(Parallel()(delayed(pid_of)() for _ in range(20)))) <= 2, "the pool is kept"
        in_order = Parallel(return_as="generator")(delayed(operator.neg)(n) for n in range(10))
        assert list(in_order) == [-n for n in range(10)]
        unordered = Parallel(return_as="generator_unordered")(delayed(operator.neg)(n) for n in range(10))
        assert sorted(unordered) == list(range(-9, 1))
        scale = 3
        assert Parallel()(delayed(lambda number: scale * number)(n) for n in range(5)) == [0, 3, 6, 9, 12]
        for pid, inner in Parallel()(delayed(nested)(n) for n in range(4)):
            assert set(inner) == {pid}, "what is nested runs in the worker"
        assert Parallel()(delayed(nested_by_name)(n) for n in range(2)) == [[0, 1, 2]] * 2
        try:
            Parallel()(delayed(fail_at)(n, 50) for n in range(100))
        except ValueError as error:
            assert error.args == (50,)
        else:
            raise SystemExit("nothing was raised")
        try:
            Parallel(timeout=0.5)(delayed(time.sleep)(seconds) for seconds in (0, 600))
        except multiprocessing.TimeoutError:
            pass
        else:
            raise SystemExit("there was no timeout")
        assert Parallel()(delayed(abs)(n) for n in range(4)) == [0, 1, 2, 3], "and goes on"
        try:
            Parallel()([delayed(os._exit)(3)])
        except clutch.WorkerLost as error:
            assert error.exit_code == 3, error
        else:
            raise SystemExit("a worker that ends is not told")
        assert Parallel()(delayed(abs)(n) for n in range(4)) == [0, 1, 2, 3]
        assert Parallel(n_jobs=1)(delayed(pid_of)() for _ in range(2)) == [os.getpid()] * 2
    with joblib.parallel_config(backend="clutch", n_jobs=2, inner_max_num_threads=1):
        assert Parallel()(delayed(os.getenv)("NUMBA_NUM_THREADS") for _ in range(2)) == ["1", "1"]
    with joblib.parallel_config(backend="clutch", n_jobs=2, initializer=begin, initargs=("here",)):
        assert Parallel()(delayed(os.getenv)("BEGUN") for _ in range(2)) == ["here", "here"]
    with joblib.parallel_config(backend="clutch", n_jobs=2, profile="thread", deadline="90s"):
        assert Parallel()(delayed(abs)(n) for n in range(4)) == [0, 1, 2, 3]
    clutch.joblib.close()
"""

ARRAYS = """
import numpy

def fill(out, n):
    out[n] = n + 1

def descriptors():
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]

def seen(array, number):
    total = float(array.sum())
    kilobytes = anonymous = 0
    is_it = False
    for line in open("/proc/self/smaps"):
        name, *rest = line.split()
        if "-" in name and not name.endswith(":"):
            is_it = "clutch-shared" in line
        elif is_it and name == "Rss:":
            kilobytes += int(rest[0])
        elif is_it and name == "Anonymous:":
            anonymous += int(rest[0])
    try:
        array[0] = number
        wrote = True
    except ValueError:
        wrote = False
    return total, kilobytes, anonymous, wrote

if __name__ == "__main__":
    big = numpy.ones(2_000_000)
    with joblib.parallel_config(backend="clutch", n_jobs=2):
        made = Parallel()(delayed(seen)(big, number) for number in range(20))
        assert {(total, wrote) for total, _, _, wrote in made} == {(2e6, False)}, made
        for _, kilobytes, anonymous, _ in made[-8:]:
            assert kilobytes >= big.nbytes >> 10 and anonymous < 64, (kilobytes, anonymous)
        big[0] = 5
        assert {one[0] for one in Parallel()(delayed(seen)(big, number) for number in range(4))} == {2e6 + 4}
        for mode in ("c", "r+"):
            assert all(one[3] for one in Parallel(mmap_mode=mode)(delayed(seen)(big, n) for n in range(4)))
        for total, kilobytes, anonymous, wrote in Parallel(max_nbytes=None)(delayed(seen)(big, n) for n in range(4)):
            assert wrote
        out = numpy.memmap("out.bin", dtype=float, shape=(8, 2), mode="w+")
        Parallel()(delayed(fill)(out, n) for n in range(4))
        Parallel()(delayed(fill)(out[4:], n) for n in range(4))
        assert out.tolist() == [[n + 1, n + 1] for n in (0, 1, 2, 3, 0, 1, 2, 3)], out
        generator = Parallel(n_jobs=2, return_as="generator")(delayed(abs)(n) for n in range(60))
        assert next(generator) == 0
        assert sum(Parallel(n_jobs=3)(delayed(abs)(n) for n in range(60))) == 1770 == sum(generator)
        for one in Parallel()(delayed(seen)(numpy.full(200_000, n), n) for n in range(60)):
            assert not one[3]
        assert sum("clutch-shared" in os.readlink(f"/proc/self/fd/{fd}") for fd in descriptors()) == 0
    assert big[0] == 5
"""


def run(folder: Path, program: str) -> None:
    (folder / "main.py").write_text(PREFACE + program)
    done = subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done.stdout + done.stderr


def test_parallel_runs_on_a_pool(tmp_path: Path) -> None:
    run(tmp_path, CALLS)


def test_large_arrays_are_one_memory_and_read_only(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    run(tmp_path, ARRAYS)


def test_tests_of_joblib_itself_pass_under_the_backend(tmp_path: Path) -> None:
    """Those that run with each backend that is known. docs/joblib.md answers the others."""
    (tmp_path / "registers.py").write_text("import clutch.joblib\nclutch.joblib.register()\n")
    chosen = "clutch and not (nested_loop and (loky-clutch or back_compat_backend-clutch))"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "registers", "-p", "no:cacheprovider", "-n", "2"]
    command += ["--pyargs", "joblib.test.test_parallel", "-k", chosen]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-5000:]


def test_it_is_a_backend_only_once_it_is_registered() -> None:
    with pytest.raises(ValueError, match="clutch"):
        joblib.Parallel(backend="clutch", n_jobs=2)
