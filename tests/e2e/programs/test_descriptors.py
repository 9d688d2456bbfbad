"""Connections of multiprocessing and sockets reach workers as they reach those of ProcessPoolExecutor."""

from __future__ import annotations

from pathlib import Path

from support.script_process import run_script

PROGRAM = """
import multiprocessing, socket
from clutch import Pool

def report(connection):
    connection.send("from a worker")

def write(sock):
    sock.sendall(b"from a worker")

def back(connection):
    return connection

def name(_):
    return multiprocessing.current_process().name

if __name__ == "__main__":
    with Pool(2, name="ours") as pool:
        for _ in range(3):
            there, here = multiprocessing.Pipe()
            pool.call(report, there)
            assert here.recv() == "from a worker"
            ours, theirs = socket.socketpair()
            pool.call(write, theirs)
            assert ours.recv(100) == b"from a worker"
        there, here = multiprocessing.Pipe()
        pool.call(back, there).send("there and back")
        assert here.recv() == "there and back"
        assert set(pool.map(name, range(8))) <= {"ours/0", "ours/1"}
        try:
            pool.imap_unordered
        except AttributeError as error:
            assert "map(function, items, ordered=False)" in str(error)
"""


def test_a_connection_is_the_same_in_a_worker(tmp_path: Path) -> None:
    done = run_script(tmp_path, PROGRAM)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
