"""Tools that do harm: to their worker, to its machine, to those who call them."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from clutch import tool
from support.rendezvous import meet, meet_without_yielding

LONG_SECONDS = 3600
loaded_in = os.getpid()
calls: list[int] = []


def arrive(port: int) -> socket.socket:
    """Says that it is here and does not wait. The connection lasts as long as the process."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"{os.getpid()} arrived\n".encode())
    return connection


@tool
def echo(value: object) -> object:
    return value


@tool
def pid() -> int:
    return os.getpid()


@tool
def visit(port: int, word: str = "") -> str:
    return meet(port, word)


@tool
def visit_or_not(port: int | None) -> int:
    """Quick without a port: so it is measured as short, and work is sent ahead."""
    if port is not None:
        meet(port)
    return os.getpid()


@tool
def note_call(number: int) -> list[int]:
    calls.append(number)
    return calls[-1:]


@tool
def noted_calls() -> list[int]:
    return calls


@tool
def where_loaded() -> tuple[int, int]:
    """The process that imported this module, and this one."""
    return loaded_in, os.getpid()


# Ways of being busy.


@tool
def hold_the_gil(port: int) -> str:
    return meet_without_yielding(port)


@tool
def without_the_gil(port: int) -> None:
    kept = arrive(port)
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2_000_000_000)
    kept.close()


@tool
def stick(port: int) -> None:
    """Waits for a lock that it holds itself: no exception and no handler of a signal ends that."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    library.pthread_mutex_lock(mutex)
    kept = arrive(port)
    while kept:
        with contextlib.suppress(BaseException):  # what is raised here before it waits
            library.pthread_mutex_lock(mutex)


@tool
def sleep_long(port: int) -> None:
    kept = arrive(port)
    time.sleep(LONG_SECONDS)
    kept.close()


@tool
def spin_long(port: int) -> None:
    kept = arrive(port)
    while kept:
        pass


def stay(port: int) -> str:
    """Comes again whatever is raised in it."""
    while True:
        try:
            return meet(port)
        except BaseException:
            continue


@tool
def ignore_all_but_term(port: int) -> str:
    return stay(port)


@tool
def ignore_term(port: int) -> str:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return stay(port)


@tool
def exit_at_term(port: int) -> str:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
    return stay(port)


# Ways of dying.


def die_by_segfault() -> None:
    ctypes.string_at(0)


def die_by_exit() -> None:
    os._exit(0)


def die_by_exit_7() -> None:
    os._exit(7)


def die_by_abort() -> None:
    os.abort()


def die_by_own_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def exit_with(code: int) -> None:
    os._exit(code)


@tool
def visit_then_die(port: int, how: Callable[[], None]) -> None:
    meet(port)
    how()


@tool
def talk_and_die(bytes_out: int, name: str) -> None:
    """Many numbered lines on one stream, then the end."""
    stream = getattr(sys, name)
    line, number = "", 0
    while bytes_out > 0:
        line = f"line {number} {'x' * 80}"
        print(line, file=stream)
        number, bytes_out = number + 1, bytes_out - len(line) - 1
    print("the last line", file=stream)
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def talk(megabytes: int) -> int:
    """Long lines, short ones, and bytes that are no text, on both streams."""
    for stream in (sys.stdout, sys.stderr):
        for number in range(megabytes):
            stream.write("y" * (1 << 19) + "\n")
            stream.writelines("z\n" for _ in range(1 << 18))
            stream.flush()
            os.write(stream.fileno(), b"\xff\xfe\0" + f" raw {number}\n".encode())
    return megabytes


# Grandchildren.


@tool
def have_children(own_session: bool = False) -> list[int]:
    """A shell's child, one that ignores TERM, a multiprocessing child, one in a session of its own: all live long."""
    shell = subprocess.Popen(["sh", "-c", f"sleep {LONG_SECONDS} & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout
    inner = int(shell.stdout.readline())
    deaf = subprocess.Popen(["sh", "-c", f"trap '' TERM; echo; exec sleep {LONG_SECONDS}"], stdout=subprocess.PIPE)
    assert deaf.stdout and deaf.stdout.readline()
    twin = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG_SECONDS,))
    twin.start()
    assert twin.pid
    pids = [shell.pid, inner, deaf.pid, twin.pid]
    if own_session:
        pids.append(subprocess.Popen(["sleep", str(LONG_SECONDS)], start_new_session=True).pid)
    return pids


@tool
def with_children() -> tuple[int, list[int]]:
    """This worker's pid, and its children's."""
    return os.getpid(), have_children()


@tool
def is_group_leader() -> bool:
    return os.getpgrp() == os.getpid()


# Code on its way back.


@tool
def give_code() -> Any:
    return lambda count: [number for number in range(count)]  # noqa: C416


@tool
def stream_code() -> Iterator[Any]:
    yield give_code()


@tool
def echo_or_code(value: int) -> Any:
    return give_code() if value == 2 else value


@tool
def raise_with_code() -> None:
    class Odd(Exception):
        def __init__(self, text: str) -> None:
            self.parts = [part for part in text]  # noqa: C416
            super().__init__(text)

    raise Odd("odd")
