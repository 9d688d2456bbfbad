"""Failure 57: the user's program forks while things of a pool are alive. Nothing changes in the parent; the child may
have pools of its own.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from support.script_process import run_script

pytestmark = pytest.mark.timeout(120)

HEAD = """
import asyncio, concurrent.futures, functools, os, sys, threading, time
import numpy as np
from clutch import Pool, PoolClosed

def echo(value): return value
def big(value, size): return np.full(size, value, np.uint8)
def count(last):
    for number in range(last): yield number
def talk(size): print("x" * size)
def read_after(pipe):
    with open(pipe) as end: return end.read()

def fork(child):
    '''The child's exit code, once it has ended.'''
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)  # in order: atexit, destructors
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def raises_closed(use):
    try:
        use()
    except PoolClosed:
        return
    raise AssertionError("no PoolClosed")

def body():
"""
TAIL = """
if __name__ == "__main__":
    body()
"""


def run(folder: Path, body: str) -> list[str]:
    """What a program printed that does this; it must end in order and without a word on stderr."""
    done = run_script(folder, HEAD + textwrap.indent(textwrap.dedent(body), "    ") + TAIL, timeout=90)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_failure_57_a_stream_goes_on_when_a_copy_of_it_is_dropped(tmp_path: Path) -> None:
    text = """
    with Pool(1) as pool:
        stream = pool.stream(count, 200)
        first = [next(stream) for _ in range(3)]
        print(fork(lambda: None))
        print(first + list(stream) == list(range(200)))
    """
    assert run(tmp_path, text) == ["0", "True"]


def test_failure_57_a_map_goes_on_when_a_copy_of_it_is_dropped(tmp_path: Path) -> None:
    text = """
    os.mkfifo("pipe")
    with Pool(1) as pool:
        paths = ["/dev/null"] * 42
        paths[5] = "pipe"  # in the second batch, which goes on after it
        items = pool.map(read_after, paths, chunksize=4)
        first = [next(items) for _ in range(4)]
        print(fork(lambda: None))
        with open("pipe", "w") as end: end.write("here")
        print(first + list(items) == ["here" if path == "pipe" else "" for path in paths])
    """
    assert run(tmp_path, text) == ["0", "True"]


@pytest.mark.parametrize("who", ["the child", "the parent"])
def test_failure_57_who_lets_go_of_an_array_does_not_change_the_others(tmp_path: Path, who: str) -> None:
    text = f"""
    with Pool(1) as pool:
        array = pool.call(big, 7, 200_000)
        again, gone = os.pipe(), os.pipe()
        def child():
            if {who == "the parent"}:
                os.write(again[1], b"x")
                os.read(gone[0], 1)
                assert (array == 7).all(), "the child's array has changed"
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            child()
            sys.exit(0)
        if {who == "the parent"}:
            os.read(again[0], 1)
            del array
        else:
            os.waitpid(pid, 0)
        others = [pool.call(big, 9, 200_000) for _ in range(3)]
        os.write(gone[1], b"x")
        if {who == "the parent"}:
            print(os.waitpid(pid, 0)[1])
        else:
            print(int(not (array == 7).all()))
        # What was given back afterwards is used again.
        del others
        for value in range(20):
            assert (pool.call(big, value, 200_000) == value).all()
    """
    assert run(tmp_path, text) == ["0"]


def test_failure_57_arguments_kept_in_a_worker_survive_its_fork(tmp_path: Path) -> None:
    text = """
    with Pool(1) as pool:
        print([pool.call(keeps_and_forks, np.full(200_000, value, np.uint8)) for value in range(5)])
    """
    functions = """
def keeps_and_forks(array):
    kept, value = array, int(array[0])
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.read(read, 1)
        os._exit(int(not (kept == value).all()))
    waiting.append((pid, write))
    if len(waiting) < 3:
        return None
    pid, write = waiting.pop(0)  # of two calls ago: its arguments were given back since
    os.write(write, b"x")
    return os.waitpid(pid, 0)[1]
waiting = []
"""
    done = run_script(tmp_path, functions + HEAD + textwrap.indent(textwrap.dedent(text), "    ") + TAIL, timeout=90)
    assert (done.stdout, done.stderr) == ("[None, None, 0, 0, 0]\n", ""), done.stderr


def test_failure_57_in_the_child_all_that_waits_for_the_pool_ends(tmp_path: Path) -> None:
    text = """
    os.mkfifo("pipe")
    with Pool(4) as pool:
        pending, standard = pool.submit(read_after, "pipe"), pool.submit(read_after, "pipe")
        standard.add_done_callback(lambda future: called.append(os.getpid()))
        called, done = [], pool.submit(echo, 5)
        done.result()
        stream, items = pool.stream(count, 100), pool.map(echo, range(100), chunksize=5)
        next(stream), next(items)
        async def wait(): await pending
        def child():
            assert done.result() == 5 and not pending.done() and not pending.running() and not pending.cancel()
            raises_closed(pending.result)
            raises_closed(pending.exception)
            raises_closed(standard.result)
            raises_closed(lambda: list(stream))
            raises_closed(lambda: list(items))
            raises_closed(lambda: asyncio.run(wait()))
            for future in (pending, standard):
                assert concurrent.futures.wait([future]).done == {future}
                assert list(concurrent.futures.as_completed([future])) == [future]
            assert called == []
        print(fork(child))
        with open("pipe", "w") as end: end.write("parent")
        print(sorted([pending.result(), standard.result()]))
        while not called: pass
        print(called == [os.getpid()], len(list(stream)), len(list(items)))
    """
    assert run(tmp_path, text) == ["0", "['', 'parent']", "True 99 99"]


def test_failure_57_in_the_child_a_map_says_what_it_cannot_submit(tmp_path: Path) -> None:
    """All that was submitted is done when the fork comes, so that only the end of the map can tell."""
    text = """
    with Pool(1) as pool:
        read = []
        items = pool.map(echo, (read.append(item) or item for item in range(100)), chunksize=5)
        first = [next(items) for _ in range(5)]
        while not all(batch.future.done() for batch in next(iter(pool._maps))._batches): pass
        submitted = len(read)
        def child():
            got = []
            raises_closed(lambda: got.extend(items) or [got.append(item) for item in items])
            assert len(read) == submitted
        print(fork(child), 5 < submitted < 100)
        print(first + list(items) == list(range(100)))
        ended = pool.map(echo, range(3))
        assert [next(ended) for _ in range(3)] == [0, 1, 2]
        print(fork(lambda: print(list(ended))))
    """
    assert run(tmp_path, text) == ["0 True", "True", "[]", "0"]


def test_failure_57_in_the_child_a_map_that_another_thread_reads_is_closed(tmp_path: Path) -> None:
    """The fork comes while that thread has the map for itself."""
    text = """
    inside, gate = threading.Event(), threading.Event()
    def numbers():
        yield 1
        inside.set()
        gate.wait()
        yield 2
    with Pool(1) as pool:
        got, items = [], pool.map(echo, numbers(), chunksize=1, buffersize=1)
        reader = threading.Thread(target=lambda: got.extend(items))
        reader.start()
        inside.wait()
        print(fork(lambda: [raises_closed(lambda: next(items)) for _ in range(2)]))
        gate.set()
        reader.join()
        print(got)
    """
    assert run(tmp_path, text) == ["0", "[1, 2]"]


def test_failure_57_no_destructor_waits_for_a_thread_that_the_child_does_not_have(tmp_path: Path) -> None:
    """The fork comes while other threads are in the middle of everything."""
    text = """
    with Pool(profile="thread", workers=1, threads=2) as pool:
        stop = threading.Event()
        def storm():
            while not stop.is_set():
                pool.submit(echo, bytes(100)).cancel()
                list(pool.stream(count, 20))
                list(pool.map(echo, range(30), chunksize=7))
        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads: thread.start()
        kept = []
        def child():
            kept.clear()
            os._exit(0)
        for _ in range(30):
            kept.append(pool.stream(count, 50))
            assert fork(child) == 0
            assert len(list(kept.pop())) == 50
        stop.set()
        for thread in threads: thread.join()
        print("done")
    """
    assert run(tmp_path, text) == ["done"]


OWN_POOL = """
def child():
    called = []
    with Pool(2) as own:
        own.call(talk, 200_000)
        future = own.submit(echo, 1)
        future.add_done_callback(lambda done: called.append(done.result()))
        assert concurrent.futures.wait([future], timeout=30).done == {future}
        async def use():
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(own, echo, 2) == 2
            assert await own.submit(echo, 3) == 3
            assert [number async for number in own.stream(count, 30)] == list(range(30))
        asyncio.run(use())
        assert list(own.stream(count, 30)) == list(own.map(echo, range(30))) == list(range(30))
        while not called: pass
"""


def test_failure_57_a_pool_made_in_the_child_works_whole(tmp_path: Path) -> None:
    text = (
        OWN_POOL
        + """
with Pool(1) as pool:
    pool.submit(echo, 1).add_done_callback(lambda done: None)
    pool.call(talk, 10)
    print(fork(child))
    print(fork(lambda: (fork(child), child())))
    pool.call(talk, 20)
"""
    )
    lines = run(tmp_path, text)
    assert sorted(line for line in lines if "x" not in line) == ["0", "0"]
    printed = [len(line.partition("] ")[2]) for line in lines if "x" in line]
    assert sum(printed) == 10 + 3 * 200_000 + 20, printed


def test_failure_57_the_child_prints_while_the_parent_is_in_the_middle_of_it(tmp_path: Path) -> None:
    """The thread that passes on what workers print is at a full pipe when the fork comes."""
    text = """
    import fcntl, signal, termios
    end, full = os.pipe()
    own = os.dup(1)
    os.dup2(full, 1)
    def held(): return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), "little")
    def child():
        os.dup2(own, 1)
        with Pool(1) as pool: pool.call(talk, 100_000)
        os._exit(0)
    with Pool(1) as pool:
        loud = pool.submit(talk, 1_000_000)
        while held() < 64 << 10: pass
        code = fork(child)
        reader = threading.Thread(target=lambda: open(end, "rb").read())
        reader.start()
        loud.result()
    os.dup2(own, 1)
    os.close(full)
    reader.join()
    print(code)
    """
    *printed, code = run(tmp_path, text)
    assert code == "0"
    assert sum(len(line.partition("] ")[2]) for line in printed) == 100_000


def test_failure_57_threads_of_the_parent_wait_for_results(tmp_path: Path) -> None:
    """The child does not have them: what its own pool wakes is never one of theirs."""
    text = """
    os.mkfifo("pipe")
    def wait_for_results(own):
        for number in range(100): assert own.submit(echo, number).result() == number
    def work_in_threads(own):
        threads = [threading.Thread(target=wait_for_results, args=(own,)) for _ in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    def child():
        with Pool(2) as own: work_in_threads(own)
    with Pool(1) as pool:
        futures = [pool.submit(read_after, "pipe")] + [pool.submit(echo, number) for number in range(16)]
        threads = [threading.Thread(target=future.result) for future in futures]
        for thread in threads: thread.start()
        for _ in range(4): print(fork(child))
        open("pipe", "w").close()
        for thread in threads: thread.join()
    """
    assert run(tmp_path, text) == ["0"] * 4


def test_failure_57_callbacks_have_one_thread_with_one_state(tmp_path: Path) -> None:
    """Where each had one made for it, CPython 3.11 left the children of forks that came then without an end."""
    text = """
    mine, seen = threading.local(), []
    def note(done):
        seen.append(getattr(mine, "count", 0))
        mine.count = done.result()
    with Pool(1) as pool:
        for number in range(1, 4):
            pool.submit(echo, number).add_done_callback(note)
            while len(seen) < number: pass
    print(seen)
    """
    assert run(tmp_path, text) == ["[0, 1, 2]"]


def test_failure_57_the_parent_does_not_work_for_the_child(tmp_path: Path) -> None:
    text = (
        OWN_POOL
        + """
with Pool(1) as pool:
    pool.call(talk, 10)
    pool.submit(echo, 1).add_done_callback(lambda done: None)
    before = time.process_time()
    for _ in range(3): print(fork(child))
    print(time.process_time() - before < 0.5)
"""
    )
    assert [line for line in run(tmp_path, text) if "x" not in line] == ["0", "0", "0", "True"]


def test_failure_57_files_of_the_program_survive_a_fork_after_a_start_that_failed(tmp_path: Path) -> None:
    """What the child is to let go of is forgotten when it was closed, also where a start was broken off."""
    text = """
    import shutil
    from clutch import ConfigError
    python = os.path.abspath("python")
    os.symlink(sys.executable, python)
    pool = Pool(1, python=python, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    pool.wait_ready(timeout=30)
    os.unlink(python)
    os.kill(pool.stats()["zygote_pid"], 9)
    raises = pool.submit(os._exit, 1)
    try: raises.result(timeout=30)
    except Exception: pass
    try: pool.call(echo, 1)
    except ConfigError as error: print("No such file" in str(error))
    pool.shutdown()
    files = [open(f"file{number}", "w") for number in range(50)]
    def child():
        for file in files:
            file.write("here")
            file.close()
    print(fork(child))
    print(all(open(f"file{number}").read() == "here" for number in range(50)))
    """
    assert run(tmp_path, text) == ["True", "0", "True"]


def test_failure_57_a_child_of_multiprocessing_is_given_an_array(tmp_path: Path) -> None:
    text = """
    import multiprocessing
    context = multiprocessing.get_context("fork")
    def check(array, go):
        go.recv()
        os._exit(int(not (array == 7).all()))
    with Pool(1) as pool:
        array = pool.call(big, 7, 200_000)
        theirs, ours = context.Pipe()
        process = context.Process(target=check, args=(array, theirs))
        process.start()
        del array
        kept = [pool.call(big, 9, 200_000) for _ in range(3)]
        ours.send("go")
        process.join()
        print(process.exitcode)
    """
    assert run(tmp_path, text) == ["0"]


def test_failure_57_nothing_is_left_open_in_the_child(tmp_path: Path) -> None:
    """Its descriptors of the pool are closed on exec, too."""
    text = """
    with Pool(1) as pool:
        pool.call(echo, 1)
        def child():
            os.set_inheritable(1, True)
            os.execvp(sys.executable, [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"])
        fork(child)
    """
    (line,) = run(tmp_path, text)
    assert len(line.split()) <= 4, f"more than the standard streams and the folder itself: {line}"
