"""What the pools of test_tcp.py run: handlers of connections, in each of the forms that are allowed."""

from __future__ import annotations

import asyncio
import os
import resource
import socket

from support import rendezvous


def echo(conn: socket.socket) -> None:
    """Says who it is, then what it is told, until the end of input; then goodbye."""
    conn.sendall(f"{os.getpid()}\n".encode())
    while data := conn.recv(1 << 16):
        conn.sendall(data)
    conn.sendall(b"bye\n")


async def echo_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"{os.getpid()}\n".encode())
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"bye\n")


async def echo_socket(conn: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(conn, f"{os.getpid()}\n".encode())
    while data := await loop.sock_recv(conn, 1 << 16):
        await loop.sock_sendall(conn, data)
    await loop.sock_sendall(conn, b"bye\n")


class Echo:
    """Made once in each worker."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.pid == os.getpid()
        await echo_streams(reader, writer)


def told(conn: socket.socket) -> None:
    """Does what its peer says in a line: a word, and the port of a rendezvous where it needs one."""
    with conn.makefile() as lines:
        word, _, port = lines.readline().strip().partition(" ")
    if word == "raise":
        raise ValueError("told to raise")
    if word == "exit":
        raise SystemExit(3)
    if word == "meet":
        conn.sendall(rendezvous.meet(int(port)).encode())
    if word == "hold":
        rendezvous.meet_without_yielding(int(port))
    if word == "starve":
        starve(conn)


def starve(conn: socket.socket) -> None:
    """Until the end of input this process can have no further descriptor."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    conn.sendall(b"starving\n")
    conn.recv(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def told_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    word, _, port = (await reader.readline()).decode().strip().partition(" ")
    if word == "raise":
        raise ValueError("told to raise")
    if word == "exit":
        raise SystemExit(3)
    if word == "meet":
        writer.write((await rendezvous.meet_async(int(port))).encode())
    if word == "hold":
        rendezvous.meet_without_yielding(int(port))


def two_parameters(one: object, other: object) -> None: ...


async def three_parameters(one: object, other: object, third: object) -> None: ...


def named(conn: object, *, name: str) -> None: ...


class NotCallable: ...


number = 5
