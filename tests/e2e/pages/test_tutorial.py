"""docs/tutorial.md, played from top to bottom: its files, its servers, its commands and what they print."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.clutch_process import WAIT_SECONDS, soon
from support.pages import ROOT, environment

PAGE = (ROOT / "docs/tutorial.md").read_text()
FOLDER_OF_PAGE = "/srv/primes"
LONG_ENOUGH_SECONDS = 120


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def steps() -> Iterator[tuple[str, str]]:
    """Each block: its language and its text."""
    yield from re.findall(r"(?ms)^```([a-z]+)\n(.*?)^```$", PAGE)


class Reader:
    """Somebody with two terminals, who does what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http, self.serve = free_address(), free_address()
        self.server: subprocess.Popen[bytes] | None = None
        self.call: subprocess.Popen[str] | None = None
        self.log = folder / "server.log"
        self.edits = iter([self.say_goodbye, self.break_it])

    def play(self, language: str, text: str) -> None:
        named = re.match(r"# ([\w.]+)\n", text)
        if language in {"python", "toml"} and named:
            (self.folder / named[1]).write_text(self.here(text))
        elif language == "text":
            soon(lambda: self.has(self.log.read_text(), text))
        elif language == "console":
            for command, promised in re.findall(r"(?m)^\$ (.*)\n((?:(?!\$ ).*\n)*)", text):
                self.type(command, promised)

    def type(self, command: str, promised: str) -> None:
        if command.startswith(("clutch run", "clutch serve")):
            self.start(command)
            soon(lambda: self.has(self.log.read_text(), promised))
        elif command.endswith("&"):
            self.call = self.begin(command.removesuffix("&"))
            soon(lambda: "runs wait" in self.output_of("clutch ps"))
        elif command.startswith("kill -9"):
            self.kill_worker(promised)
        else:
            if command == "clutch reload":
                next(self.edits)()
            printed = self.output_of(command)
            assert self.has(printed, promised), f"{command}\n{printed}"

    # What the page says in words

    def say_goodbye(self) -> None:
        self.edit('{"hello": name}', '{"goodbye": name}')

    def break_it(self) -> None:
        self.edit('{"goodbye": name}\n', '{"goodbye": name}\ndef broken(\n')

    def edit(self, old: str, new: str) -> None:
        text = (self.folder / "web.py").read_text()
        assert old in text
        (self.folder / "web.py").write_text(text.replace(old, new))

    # Terminals

    def start(self, command: str) -> None:
        self.end()
        if "--reload" in command:
            self.edit("def broken(\n", "")
        words = shlex.split(command) + (["-b", self.serve] if "serve" in command else [])
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(words, cwd=self.folder, env=environment(), stdout=log, stderr=log)

    def end(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            self.server.wait(WAIT_SECONDS)

    def kill_worker(self, promised: str) -> None:
        (pool,) = json.loads(self.output_of("clutch ps --json"))["pools"]
        os.kill(pool["workers"][0]["pid"], signal.SIGKILL)
        assert self.call is not None
        printed, _ = self.call.communicate(timeout=WAIT_SECONDS)
        assert self.has(printed, promised), printed
        soon(lambda: "2 of 2 workers ready" in self.output_of("clutch ps"))

    def begin(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", self.here(command)],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def output_of(self, command: str) -> str:
        return self.begin(command).communicate(timeout=LONG_ENOUGH_SECONDS)[0]

    # Comparing

    def here(self, text: str) -> str:
        return text.replace("127.0.0.1:8080", self.http).replace("127.0.0.1:8000", self.serve)

    def has(self, printed: str, promised: str) -> bool:
        """Every line, whatever the order of workers; numbers of processes, times and ports are each run's own."""
        return {self.plain(line) for line in promised.splitlines()} <= set(map(self.plain, printed.splitlines()))

    def plain(self, line: str) -> str:
        line = line.replace(str(self.folder), FOLDER_OF_PAGE)
        return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+|\d[\d.:]*", "0", line)).strip()


def test_a_reader_sees_what_the_page_shows(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(reader.end)
        for language, text in steps():
            reader.play(language, text)
    assert next(reader.edits, None) is None
