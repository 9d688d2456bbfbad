"""Failures 8 to 16, 54 and 56: how pools start, or do not."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clutch import ClutchError, ConfigError, Pool, WorkerLost
from clutch.config import limits
from clutch.testing import Processes, Watch
from support.clutch_process import environment
from support.rendezvous import Rendezvous
from support.script_process import Script, run_script

pytestmark = pytest.mark.timeout(120)
KNOWN_SECONDS_MAX = 2.0
STOP_SECONDS_MAX = 1.0
OUTPUT_BYTES_MIN = 8 << 10
ANSWER_SECONDS_MAX = 0.1
ATTEMPTS = 5
BACKOFF_SECONDS_FIRST = 0.1
BUSY_SHARE_MAX = 0.2


def tool(body: str = "return 'works'") -> str:
    return f"import clutch\n@clutch.tool\ndef work():\n    {body}\n"


# What a worker prints.


def test_failure_08_output_of_workers_is_prefixed_and_whole(tmp_path: Path) -> None:
    text = """
from clutch import Pool
if __name__ == "__main__":
    with Pool("harmful_tools", name="loud", workers=2) as pool:
        assert list(pool.map("talk", [4, 4], chunksize=1)) == [4, 4]
        print("the end")
"""
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    for stream in (done.stdout, done.stderr):
        lines = [line for line in stream.splitlines() if line != b"the end"]
        assert all(re.match(rb"\[loud/[01]\] ", line) for line in lines)
        assert sum(line.count(b"z") for line in lines) == 8 << 18
        assert sum(line.count(b"y") for line in lines) == 8 << 19
        assert sum(b"\xff\xfe\0 raw" in line for line in lines) == 8


def test_the_beginning_of_a_line_does_not_wait_for_its_end(tmp_path: Path, rendezvous: Rendezvous) -> None:
    """A prompt, dots and a bar; another worker's line does not go behind them."""
    text = """
import sys
from clutch import Pool
from support.rendezvous import meet

def ask(port):
    print("name? ", end="", flush=True)
    meet(port)
    print("ann", flush=True)

def tell(port):
    print("told", flush=True)

if __name__ == "__main__":
    with Pool(name="asks", workers=2) as pool:
        asked = pool.submit(ask, int(sys.argv[1]))
        sys.stdin.readline()
        pool.submit(tell, 0).result(60)
        asked.result(60)
"""
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, "script.py", str(rendezvous.port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said = b""
        while not re.fullmatch(rb"\[asks/[01]\] name\? ", said):
            said += os.read(process.stdout.fileno(), 4096)
            assert len(said) < 100, said
        process.stdin.write(b"\n")
        process.stdin.close()
        while b"told" not in said:
            said += os.read(process.stdout.fileno(), 4096)
        rendezvous.guest().let_go()
        said += process.stdout.read()
    lines = [line.split(b"] ", 1)[1] for line in said.splitlines()]
    assert lines == [b"name? ", b"told", b"ann"]


def test_failure_08_nobody_reads_the_output(tmp_path: Path) -> None:
    """Standard output is a pipe that is full: only the workers' prints wait."""
    text = """
import sys
from clutch import Pool
if __name__ == "__main__":
    with Pool("harmful_tools", workers=2) as pool:
        loud = pool.submit("talk", 1)
        for number in range(1000):
            assert pool.call("echo", number) == number
        sys.stderr.write("calls are done\\n")
        pool.terminate_workers()
    sys.stderr.write("ended\\n")
"""
    (tmp_path / "script.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "stderr").open("w"),
    )
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
    text = (tmp_path / "stderr").read_text()
    assert "calls are done" in text and text.rstrip().endswith("ended")


def test_failure_08_a_slow_reader_is_given_all_at_the_end(tmp_path: Path) -> None:
    """The program waits for it, as one that prints itself does."""
    text = """
from clutch import Pool
def talk():
    print("x" * 300_000)
if __name__ == "__main__":
    with Pool(1) as pool:
        pool.call(talk)
"""
    (tmp_path / "script.py").write_text(text)
    process = subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE)
    assert process.stdout
    with process:
        printed = process.stdout.read(100_000)
        with Processes.below(process.pid) as below:
            printed += process.stdout.read(100_000)
            below.wait_ended()  # what is left is in the pipe, and with the program
        printed += process.stdout.read()
    assert process.returncode == 0
    assert printed.count(b"x") == 300_000


def test_failure_08_output_counts_as_printed_when_somebody_takes_it(tmp_path: Path) -> None:
    text = """
import fcntl, os, termios, threading
from clutch import Pool, _core
def talk():
    print("x" * 100_000)
def held():
    return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), "little")
if __name__ == "__main__":
    end, full = os.pipe()
    own = os.dup(1)
    os.dup2(full, 1)
    with Pool(1) as pool:
        pool.call(talk)
        while held() < 64 << 10: pass
        told = [_core.PrintedByNow().wait(0.0)]
        taken = os.read(end, 64 << 10)
        told.append(_core.PrintedByNow().wait(30.0))
        taken += os.read(end, 64 << 10)
    os.dup2(own, 1)
    print(told, taken.count(b"x"))
"""
    done = run_script(tmp_path, text)
    assert (done.stdout, done.stderr) == ("[False, True] 100000\n", "")


def test_failure_08_piped_to_head(tmp_path: Path) -> None:
    text = """
from clutch import Pool
if __name__ == "__main__":
    with Pool("harmful_tools", workers=2) as pool:
        print("first line", flush=True)
        assert list(pool.map("talk", [2] * 4, chunksize=1)) == [2] * 4
        open("finished", "w").close()
"""
    (tmp_path / "script.py").write_text(text)
    command = f"{sys.executable} script.py | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert done.stdout.splitlines() == [b"first line", b"0"]
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "finished").exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_failure_08_the_last_output_is_in_the_crash_report(stream: str) -> None:
    with Pool("harmful_tools", workers=1) as pool, pytest.raises(WorkerLost) as caught:
        pool.call("talk_and_die", 1 << 20, stream)
    output = caught.value.output
    assert len(output) >= OUTPUT_BYTES_MIN
    assert output.rstrip().splitlines()[-1].endswith("the last line")
    numbers = [int(number) for number in re.findall(r"line (\d+) x", output)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 50
    assert "the last line" in str(caught.value)


# Imports that fail.


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("preload", [True, False])
def test_failure_09_a_target_that_does_not_import(folder: Path, start: str, preload: bool) -> None:
    source = f"import time, pathlib\npathlib.Path({str(folder / 'at')!r}).write_text(str(time.monotonic()))\n"
    (folder / "written_broken.py").write_text(source + "def inner():\n    import no_such_module_7\ninner()\n")
    with Pool("written_broken", workers=2, start=start, preload=preload) as pool:
        for attempt in (lambda: pool.call("work"), pool.submit("work").result, pool.wait_ready):
            with pytest.raises(ClutchError) as caught:
                attempt()
            text = str(caught.value)
            assert "written_broken" in text and "no_such_module_7" in text
            assert "ModuleNotFoundError" in text and "in inner" in text, "the traceback is there"
        told_at = time.monotonic()
        assert pool.stats()["state"] == "failing"
        if preload and start == "fork":
            assert told_at - float((folder / "at").read_text()) < KNOWN_SECONDS_MAX


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_package.module", "no_such_package"),
        ("harmful_tools:nothing", "nothing"),
        ("harmful_tools:ech", "echo"),
        ("harmful_tools.deeper", "not a package"),
    ],
)
def test_failure_09_a_target_that_is_not_there(target: str, words: str) -> None:
    with Pool(target, workers=1) as pool, pytest.raises(ConfigError, match=words):
        pool.call("work")


def test_failure_09_a_syntax_error(folder: Path) -> None:
    (folder / "written_syntax.py").write_text("def work(:\n")
    with Pool("written_syntax") as pool, pytest.raises(ConfigError, match="SyntaxError") as caught:
        pool.call("work")
    assert "written_syntax.py" in str(caught.value)


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "import sys; sys.exit('no')", "raise KeyboardInterrupt"])
def test_failure_09_an_import_that_exits(folder: Path, ending: str) -> None:
    (folder / "written_exits.py").write_text(ending)
    with Pool("written_exits") as pool, pytest.raises(ConfigError, match="written_exits"):
        pool.call("work")


@pytest.mark.parametrize("ending", ["os._exit(0)", "os._exit(3)", "os.kill(os.getpid(), 11)", "os.abort()"])
def test_failure_09_an_import_that_ends_the_process(folder: Path, ending: str) -> None:
    (folder / "written_ends.py").write_text(f"import os\n{ending}\n")
    with Pool("written_ends") as pool, pytest.raises(ConfigError) as caught:
        pool.call("work")
    assert "zygote" in str(caught.value)


@pytest.mark.parametrize("python", ["/bin/true", "/bin/cat", "/no/such/python", "no-such-python-7"])
def test_failure_09_a_wrong_interpreter(python: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(python)), Pool("harmful_tools", python=python) as pool:
        pool.call("work")


def test_failure_09_an_interpreter_without_clutch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    python = str(tmp_path / "venv/bin/python")
    with pytest.raises(ConfigError) as caught, Pool("harmful_tools", python=python) as pool:
        pool.call("work")
    assert python in str(caught.value) and "clutch" in str(caught.value)


def test_failure_09_other_pools_are_not_touched(folder: Path) -> None:
    (folder / "written_broken.py").write_text("raise ValueError('broken')")
    with Pool("written_broken", name="broken") as broken, Pool("harmful_tools", name="whole") as whole:
        with pytest.raises(ConfigError):
            broken.call("work")
        assert whole.call("echo", 1) == 1


def test_failure_12_a_failing_pool_recovers_by_itself(folder: Path, events: Watch) -> None:
    source = folder / "written_later.py"
    source.write_text("raise ValueError('not yet')")
    with Pool("written_later", workers=1) as pool:
        with pytest.raises(ConfigError, match="not yet"):
            pool.call("work")
        source.write_text(tool())
        events.wait("pool_recovered", pool="pool")
        assert pool.call("work") == "works"
        assert pool.stats()["reason"] is None


FAILS_TO_START = "@clutch.on_start\ndef begin():\n    raise ValueError('no database')\n"


def test_failure_12_one_worker_of_two_cannot_start(tmp_path: Path, rendezvous: Rendezvous) -> None:
    """The one that fails first does not fail the pool while another starts; it is told, and is the pool's reason."""
    text = f"""
import fcntl, os
from clutch import Pool
from support.rendezvous import meet

def start():
    global lock
    lock = open("lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeError("another worker holds the lock") from None
    meet({rendezvous.port})

if __name__ == "__main__":
    with Pool(name="shop", workers=2, initializer=start) as pool:
        called = pool.submit(os.getpid)
        while (reason := pool.stats()["reason"]) is None:
            pass
        assert "another worker holds the lock" in reason, reason
        meet({rendezvous.port}, "told")
        called.result()
"""
    with Script(tmp_path, text) as script:
        guests = [rendezvous.guest(), rendezvous.guest()]
        assert sorted(guest.word for guest in guests) == ["", "told"]
        for guest in guests:
            guest.let_go()
        assert script.process.wait() == 0
        told = r"warning: a worker of pool 'shop' could not start: RuntimeError\('another worker holds the lock'\)"
        assert len(re.findall(told, script.err.text)) == 1


@pytest.mark.parametrize(
    ("source", "event"),
    [("raise ValueError('no database')\n", "zygote_started"), (FAILS_TO_START, "worker_starting")],
    ids=["import", "start hook"],
)
def test_failure_12_starts_that_fail_come_slower_and_slower(
    folder: Path, events: Watch, source: str, event: str
) -> None:
    (folder / "written_fails.py").write_text("import clutch\n" + source + tool())
    with Pool("written_fails", workers=1) as pool:
        events.wait(event, pool="pool")
        started, busy = [time.monotonic()], time.process_time()
        for _ in range(ATTEMPTS):
            events.wait(event, pool="pool")
            started.append(time.monotonic())
        took, worked = started[-1] - started[0], time.process_time() - busy
        stats = pool.stats()
        assert stats["state"] == "failing" and "no database" in stats["reason"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert all(gap >= 0.9 * BACKOFF_SECONDS_FIRST * 2**nr for nr, gap in enumerate(gaps)), gaps
    assert worked < BUSY_SHARE_MAX * took, "the dispatcher waits"


# What an import does.


def test_failure_10_an_import_that_prints_forks_and_starts_threads(folder: Path, events: Watch) -> None:
    (folder / "written_busy.py").write_text(
        "import os, socket, sys, threading\n"
        "print('printed while importing')\n"
        "sys.stdin.read()\n"
        "if os.fork() == 0:\n    os._exit(0)\n"
        "os.wait()\n"
        "stop = threading.Event()\n"
        "threading.Thread(target=stop.wait, name='busy-bee', daemon=True).start()\n"
        "server = socket.create_server(('127.0.0.1', 0))\n" + tool()
    )
    with Pool("written_busy", workers=2) as pool:
        assert pool.call("work") == "works"
        warnings = " ".join(events.wait("zygote_ready", pool="pool")["warnings"])
        assert "busy-bee" in warnings and "listens on 127.0.0.1:" in warnings and "preload = true" in warnings


def test_failure_10_a_process_that_an_import_leaves_behind(folder: Path, events: Watch) -> None:
    """It holds copies of the zygote's descriptors, and does not keep the pool from starting and ending."""
    (folder / "written_leaves.py").write_text(
        "import os, time\nchild = os.fork()\nif child == 0:\n    time.sleep(3600)\n" + tool("return child")
    )
    with Pool("written_leaves", workers=1) as pool:
        left = Processes([pool.call("work")])
        zygote = pool.stats()["zygote_pid"]
        os.kill(zygote, signal.SIGKILL)
        events.wait("zygote_lost", pool="pool")
        events.wait("zygote_ready", pool="pool", generation=2)
        again = Processes([pool.submit("work").result(30)])
        pool.recycle(timeout=60)
        again = Processes([pool.call("work")])
        assert again.pids != left.pids
    assert again.alive(2.0) == []
    left.send(signal.SIGKILL)


def test_failure_10_numpy_is_no_reason_to_warn(folder: Path, events: Watch) -> None:
    (folder / "written_numpy.py").write_text("import numpy\nnumpy.ones((300, 300)) @ numpy.ones((300, 300))\n" + tool())
    with Pool("written_numpy", workers=1) as pool:
        assert pool.call("work") == "works"
    assert events.wait("zygote_ready", pool="pool")["warnings"] == []


def test_preload_happens_once_and_otherwise_in_each_worker() -> None:
    with Pool("harmful_tools", workers=2) as pool:
        zygote = pool.stats()["zygote_pid"]
        assert {pool.call("where_loaded")[0] for _ in range(10)} <= {zygote, pool.stats()["zygote_pid"]}
    for options in ({"preload": False}, {"start": "spawn"}):
        with Pool("harmful_tools", workers=2, **options) as pool:
            pool.wait_ready(timeout=60)
            for _ in range(10):
                loaded_in, pid = pool.call("where_loaded")
                assert loaded_in == pid


@pytest.mark.parametrize("how", ["meet", "meet_without_yielding"])
def test_failure_11_an_import_that_hangs_is_killed(
    folder: Path, rendezvous: Rendezvous, events: Watch, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    source = f"from support import rendezvous\nrendezvous.{how}({rendezvous.port}, 'importing')\n" + tool()
    (folder / "written_hangs.py").write_text(source)
    with Pool("harmful_tools", name="whole") as whole, Pool("written_hangs", workers=1, start_timeout=2) as pool:
        hanging = rendezvous.guest()
        assert whole.call("echo", 1) == 1
        with pytest.raises(ConfigError, match="start_timeout"):
            pool.call("work")
        hanging.wait_gone()
        rendezvous.guest().let_go()  # the next attempt
        assert re.search(r'\[pool/zygote\] .*/written_hangs.py", line 2 in <module>', capfd.readouterr().err)
        events.wait("pool_recovered", pool="pool")
        assert pool.call("work") == "works"
        assert whole.call("echo", 1) == 1 and events.all("pool_failing", pool="whole") == []


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_failure_11_a_start_hook_that_hangs_is_killed(
    folder: Path, rendezvous: Rendezvous, events: Watch, start: str
) -> None:
    hook = f"from support import rendezvous\n@clutch.on_start\ndef hook():\n    rendezvous.meet({rendezvous.port})\n"
    (folder / "written_hook.py").write_text("import clutch\n" + hook + tool())
    with Pool("written_hook", workers=1, start_timeout=1.5, start=start) as pool:
        hanging = rendezvous.guest()
        hanging.wait_gone()
        assert "start_timeout" in events.wait("worker_gone", pool="pool", pid=hanging.pid)["cause"]
        reason = events.wait("pool_failing", pool="pool")["reason"]
        assert 'set start_timeout = "3s" of pool "pool"' in reason and 'written_hook.py", line 5 in hook' in reason
        rendezvous.guest().let_go()
        events.wait("worker_ready", pool="pool")
        assert pool.call("work") == "works"


def test_failure_13_stop_in_the_middle_of_an_import(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_slow.py").write_text(
        f"from support import rendezvous\nrendezvous.meet({rendezvous.port})\n" + tool()
    )
    pool = Pool("written_slow", workers=2, grace=0.5)
    importing = rendezvous.guest()
    pool.terminate_workers()
    pool.shutdown()
    importing.wait_gone()


STARTS_SLOWLY = """
import clutch
from support import rendezvous
@clutch.on_start
def begin():
    rendezvous.meet({port})
"""


@pytest.mark.parametrize("how", ["shutdown", "terminate_workers", "kill_workers"])
def test_failure_13_stop_in_the_middle_of_workers_starts(folder: Path, rendezvous: Rendezvous, how: str) -> None:
    (folder / "written_slow.py").write_text(STARTS_SLOWLY.format(port=rendezvous.port) + tool())
    pool = Pool("written_slow", workers=4)
    guests = rendezvous.guests(4)
    with Processes([pool.stats()["zygote_pid"], *(guest.pid for guest in guests)]) as processes:
        started = time.monotonic()
        getattr(pool, how)()
        pool.shutdown()
        assert time.monotonic() - started < STOP_SECONDS_MAX
        assert processes.alive() == []


def test_failure_13_stop_while_some_are_ready_and_others_start(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_slow.py").write_text(STARTS_SLOWLY.format(port=rendezvous.port) + tool())
    pool = Pool("written_slow", workers=4)
    guests = rendezvous.guests(4)
    guests[0].let_go()
    assert pool.call("work") == "works"
    with Processes([pool.stats()["zygote_pid"], *(guest.pid for guest in guests)]) as processes:
        started = time.monotonic()
        pool.shutdown()
        assert time.monotonic() - started < STOP_SECONDS_MAX
        assert processes.alive() == []


def quickest(action: Callable[[], object]) -> float:
    """The best of some attempts: what a busy machine adds is not the pool's."""
    took = []
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        action()
        took.append(time.monotonic() - started)
    return min(took)


def test_failure_15_a_pool_that_starts_keeps_nobody_waiting(folder: Path, rendezvous: Rendezvous) -> None:
    (folder / "written_slow.py").write_text(
        f"from support import rendezvous\nrendezvous.meet({rendezvous.port})\n" + tool()
    )
    with Pool("harmful_tools", name="ready") as ready:
        ready.wait_ready(timeout=60)
        with Pool("written_slow", name="slow") as slow:
            importing = rendezvous.guest()
            assert slow.stats()["state"] == "starting"
            stopped = [Pool("harmful_tools", name=f"stopped-{nr}", workers=1) for nr in range(ATTEMPTS)]
            for pool in stopped:
                pool.wait_ready(timeout=60)
            for action in (slow.stats, ready.stats, lambda: ready.call("echo", 1), lambda: stopped.pop().shutdown()):
                assert quickest(action) < ANSWER_SECONDS_MAX
            assert slow.stats()["state"] == "starting"
            waiting = slow.submit("work")
            importing.let_go()
            assert waiting.result(30) == "works"


# Many workers.


def threads_of(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_failure_14_a_hundred_workers_at_once() -> None:
    before = threads_of("self")
    with Pool("harmful_tools", workers=100) as pool:
        pool.wait_ready(timeout=60)
        stats = pool.stats()
        assert stats["ready"] == 100
        assert threads_of("self") - before <= 4, "threads of the dispatcher do not grow with the workers"
        assert all(threads_of(worker["pid"]) <= 3 for worker in stats["workers"])
        assert threads_of(stats["zygote_pid"]) <= 2
        assert len(set(pool.map("visit_or_not", [None] * 2000, chunksize=1))) > 1


LIMITED = """
import resource, sys
from clutch import ConfigError, Pool, ClutchError

if __name__ == "__main__":
    soft, hard, workers = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with Pool("harmful_tools", workers=workers) as pool:
        try:
            pool.wait_ready(timeout=60)
        except ClutchError as error:
            print("error:", error)
        else:
            print("ready:", pool.stats()["ready"])
            print("limits in a worker:", *pool.call(resource.getrlimit, resource.RLIMIT_NOFILE))
"""


def test_failure_56_a_low_soft_limit_of_descriptors(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = run_script(tmp_path, LIMITED, "1024", str(hard), "250", timeout=100)
    assert done.stdout.splitlines() == ["ready: 250", f"limits in a worker: 1024 {hard}"], done.stderr


def test_failure_56_a_hard_limit_that_is_too_low(tmp_path: Path) -> None:
    done = run_script(tmp_path, LIMITED, "100", "100", "60", timeout=100)
    found = re.search(
        r"ConfigError: pool 'pool' of 60 workers needs (\d+) more descriptors.*hard limit is 100", done.stderr
    )
    assert found and int(found[1]) > 100 and done.returncode == 1, done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr


# BLAS.


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (1, 2), (50, 1)])
def test_failure_16_blas_threads_are_set_before_the_import(folder: Path, workers: int, threads: int) -> None:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    (folder / "written_env.py").write_text(
        "import os, clutch\n"
        f"seen = [os.environ.get(name) for name in {names!r}]\n"
        "@clutch.tool\ndef work():\n    return seen\n"
    )
    wanted = str(max(1, limits.usable_cpus() // (workers * threads)))
    profile = "thread" if threads > 1 else "process"
    with Pool("written_env", profile=profile, workers=workers, threads=threads) as pool:
        assert pool.call("work") == [wanted] * len(names)


def test_failure_16_by_the_affinity_of_the_dispatcher(folder: Path) -> None:
    (folder / "written_env.py").write_text(tool("return __import__('os').environ['OPENBLAS_NUM_THREADS']"))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with Pool("written_env", workers=1) as pool:
            assert pool.call("work") == "1"
            assert pool.stats()["target"] == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_failure_16_what_the_user_sets_stays_and_too_much_is_said() -> None:
    with pytest.warns(UserWarning, match="OPENBLAS_NUM_THREADS=64 with 2 workers"):
        pool = Pool("harmful_tools", workers=2, env={"OPENBLAS_NUM_THREADS": "64"})
    with pool:
        assert pool.call(os.getenv, "OPENBLAS_NUM_THREADS") == "64"


def test_failure_54_workers_of_one_zygote_draw_different_numbers(rendezvous: Rendezvous, folder: Path) -> None:
    (folder / "written_random.py").write_text(
        "import random, uuid, os, tempfile, clutch, numpy\nfrom support import rendezvous\n"
        "random.random(), numpy.random.random(), uuid.uuid4()\n"
        "names = tempfile._get_candidate_names(); next(names)\n"
        "@clutch.tool\ndef draw(port):\n"
        "    rendezvous.meet(port)\n"
        "    return [random.random(), float(numpy.random.random()), str(uuid.uuid4()), os.urandom(8), next(names)]\n"
    )
    with Pool("written_random", workers=4) as pool:
        pool.wait_ready(timeout=60)
        futures = [pool.submit("draw", rendezvous.port) for _ in range(4)]
        guests = rendezvous.guests(4)
        assert len({guest.pid for guest in guests}) == 4
        for guest in guests:
            guest.let_go()
        for drawn in zip(*(future.result(30) for future in futures), strict=True):
            assert len(set(drawn)) == 4, drawn


def test_a_pool_may_be_made_in_any_thread() -> None:
    results: list[object] = []

    def use() -> None:
        with Pool("harmful_tools", workers=1) as pool:
            results.append(pool.call("echo", 7))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(60)
    assert results == [7]


def test_a_pool_outlives_the_thread_that_made_it() -> None:
    """The zygote's death signal must not be bound to that thread."""
    made: list[Pool] = []
    thread = threading.Thread(target=lambda: made.append(Pool("harmful_tools", workers=1)))
    thread.start()
    thread.join(30)
    with made[0] as pool:
        assert pool.call("echo", 1) == 1
        assert pool.stats()["restarts"] == 0


def test_a_program_that_never_ends_its_pool_still_ends(tmp_path: Path) -> None:
    text = """
from clutch import Pool
if __name__ == "__main__":
    pool = Pool("harmful_tools", workers=2)
    futures = [pool.submit("echo", number) for number in range(100)]
    futures[-1].add_done_callback(lambda future: print("done", future.result()))
    print("main ends")
"""
    with Script(tmp_path, text) as script:
        script.hear("main ends")
        with script.below() as processes:
            assert script.process.wait(60) == 0, script.err.text
            assert processes.alive(2.0) == []
        assert "done 99" in script.out.wait_end()
        assert script.err.wait_end() == ""
