"""`clutch init`: a commented clutch.toml and a first tools file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from clutch.cli.flags import as_json

TOOLS = '''\
"""Tools for Clutch. Try them: `clutch run`, then `clutch call tools.greet name=Ada`."""

import asyncio
from collections.abc import Iterator

from clutch import tool


@tool
def greet(name: str) -> str:
    return f"Hello, {name}"


@tool
def primes_below(limit: int) -> int:
    """Count the primes below `limit` (CPU work)."""
    sieve = bytearray([1]) * max(limit, 2)
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(sieve[number * number :: number]))
    return sum(sieve[2:limit])


@tool
def countdown(n: int) -> Iterator[int]:
    """Stream the values of a generator."""
    yield from range(n, 0, -1)


@tool
async def wait(seconds: float) -> float:
    """Waiting costs no worker in the profiles async and greenlet."""
    await asyncio.sleep(seconds)
    return seconds
'''


@click.command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@as_json
def command(folder: Path, as_json: bool) -> None:
    """Write clutch.toml and tools.py to FOLDER. Existing files are not changed."""
    from clutch.config.pages import example

    folder.mkdir(parents=True, exist_ok=True)
    written, kept = [], []
    for name, text in (("clutch.toml", example()), ("tools.py", TOOLS)):
        (written if _write_new(folder / name, text) else kept).append(str(folder / name))
    if as_json:
        click.echo(json.dumps({"written": written, "kept": kept}))
    else:
        _say(folder, written, kept)
    raise SystemExit(0 if written else 1)


def _write_new(file: Path, text: str) -> bool:
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        return False
    return True


def _say(folder: Path, written: list[str], kept: list[str]) -> None:
    for file in written:
        click.echo(f"written: {file}")
    for file in kept:
        click.echo(f"already exists, kept: {file}", err=True)
    where = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"next: {where}clutch run")
