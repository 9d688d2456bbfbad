"""Runs a case: an environment with the library, the programs in it, and what they show."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cases import STANDARD, Case
from programs import ALONE, FORKED, POOLED, TARGET
from servers import SERVERS

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 240
INSTALL_SECONDS_MAX = 600
PROFILES = ("process", "thread", "async", "greenlet")
OWN = ("cloudpickle", "pydantic", "rich", "typer", "gevent")
"""What Clutch needs, in a folder that comes after the libraries of an environment."""
MAKES_OWN = threading.Lock()


@dataclass
class Outcome:
    """What a case showed."""

    name: str
    version: str = ""
    threads: int = 0
    """Threads that the import and its use at the top have left."""
    sockets: int = 0
    answer: str = ""
    """The first right one, without a pool."""
    forked: str = ""
    """What it does in a plain fork."""
    verdict: str = ""
    said: list[str] = field(default_factory=list)
    """Clutch's lines about it."""
    python: str = field(default_factory=platform.python_version)
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())


class NotHere(Exception):
    """The case cannot be run; the text says why."""


def told(case: Case, folder: Path, profiles: tuple[str, ...], here: bool) -> Outcome:
    """Run the case and print what it shows. `here`: in the environment of this Python, and in no plain fork."""
    try:
        outcome = run(case, folder, profiles, here)
    except NotHere as error:
        outcome = Outcome(case.name, verdict=f"skipped: {error}")
    left = f"{outcome.threads} threads, {outcome.sockets} sockets"
    print(
        f"{case.name}: {outcome.version} {left}: {outcome.verdict} (forked: {outcome.forked})",
        *outcome.said,
        sep="\n    ",
        flush=True,
    )
    return outcome


def run(case: Case, folder: Path, profiles: tuple[str, ...], here: bool) -> Outcome:
    if case.server is not None and not SERVERS.has(case.server):
        raise NotHere(f"there is no server, {case.server}")
    python = sys.executable if here else environment_of(case, folder)
    place = folder / "places" / case.name
    shutil.rmtree(place, ignore_errors=True)
    (place / "tmp").mkdir(parents=True)
    use = "\n".join(f"    {line}" for line in case.use.splitlines())
    (place / "target.py").write_text(TARGET.format(top=case.top, use=use))
    outcome = Outcome(case.name, version_of(case, python, place))
    done, found = seen_by(ALONE, "alone", python, place)
    if found is None:
        raise NotHere(f"it does not run without a pool: {last_line(done)}")
    outcome.threads, outcome.sockets, alone = found["threads"], found["sockets"], found["alone"]
    outcome.answer = alone[0][:80]
    outcome.forked = "not tried" if here else verdict_of(case, *seen_by(FORKED, "forked", python, place), alone)
    for profile in profiles:
        if profile == "greenlet" and not case.in_greenlets:
            continue
        done, found = seen_by(POOLED, "pooled", python, place, profile)
        outcome.said = said(done.stderr) or outcome.said
        verdict = verdict_of(case, done, found, alone)
        if verdict != "works":
            outcome.verdict = verdict if profiles == ("process",) else f"{profile}: {verdict}"
            return outcome
    outcome.verdict = "works"
    shutil.rmtree(place)
    return outcome


def verdict_of(
    case: Case, done: subprocess.CompletedProcess[str], found: dict[str, Any] | None, alone: list[str]
) -> str:
    """Say "works", or in what way it does not. `alone`: the right answers."""
    if done.returncode is None:
        return f"does not end within {RUN_SECONDS_MAX} s"
    if found is None:
        return f"ends with {done.returncode}: {last_line(done)}"
    values = [value for value, _ in found["seen"]]
    errors = [error for _, error in found["seen"] if error is not None]
    if found["restarts"]:
        return f"{found['restarts']} workers died: {errors[0] if errors else ''}"
    if errors:
        return f"{len(errors)} of {len(values)} calls: {errors[0]}"
    if found["missing"]:
        return f"not all workers start: {found['missing']} missing"
    if case.is_random:
        return "works" if len(set(values)) == len(values) else "equal numbers in two processes"
    if values == alone or case.differs:
        return "works"
    wrong = next((value, right) for value, right in zip(values, alone, strict=True) if value != right)
    differ = next((at for at, (one, other) in enumerate(zip(*wrong, strict=False)) if one != other), 0)
    same = max(0, differ - 10)
    return "other answers: {} for {}".format(*(f"{'…' if same else ''}{one[same : same + 40]}" for one in wrong))


def said(stderr: str) -> list[str]:
    """Lines of Clutch's, each once."""
    of_clutch = re.compile(r"warning: |info: |importing the target|pool is failing")
    lines = [" ".join(line.split()) for line in stderr.splitlines() if of_clutch.search(line)]
    return list(dict.fromkeys(lines))[:3]


def environment_of(case: Case, folder: Path) -> str:
    """Make the environment, unless it is there, and return its interpreter."""
    place = folder / "environments" / environment_name(case)
    python = place / "bin/python"
    if not (place / "made").exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place)
        if case.requires != (STANDARD,):
            install(case.requires, "--python", str(python))
        site = next((place / "lib").glob("python*/site-packages"))
        (site / "clutch.pth").write_text(f"{ROOT / 'python'}\n{own(folder)}\n")
        (place / "made").touch()
    return str(python)


def environment_name(case: Case) -> str:
    return re.sub(r"[^\w]+", "-", " ".join(case.requires)).strip("-")


def own(folder: Path) -> Path:
    place = folder / "own"
    with MAKES_OWN:
        if not place.exists():
            install(OWN, target=place)
    return place


def install(packages: tuple[str, ...], *options: str, target: Path | None = None) -> None:
    command = [sys.executable, "-m", "pip", *options, "install", "--quiet", "--disable-pip-version-check"]
    into = ["--target", str(target)] if target is not None else []
    try:
        subprocess.run(
            [*command, "--no-compile", *into, *packages],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"it is not installed within {INSTALL_SECONDS_MAX} s") from None
    except subprocess.CalledProcessError as error:
        raise NotHere(f"it does not install here: {last_line(error)}") from None


def version_of(case: Case, python: str, place: Path) -> str:
    if case.requires == (STANDARD,):
        return f"CPython {platform.python_version()}"
    name = re.split(r"[\[=<>]", case.requires[0])[0]
    script = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", script], cwd=place, capture_output=True, text=True, check=False).stdout.strip()


def seen_by(
    program: str, name: str, python: str, place: Path, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any] | None]:
    """Run the program; return how it ended (`returncode` None: it did not), and what it has written, if anything. What
    it has started ends with it."""
    (place / f"{name}.py").write_text(program)
    result, out, err = place / f"{name}.json", place / f"{name}.out", place / f"{name}.err"
    command = [python, f"{name}.py", result.name, *arguments]
    with out.open("w") as to_out, err.open("w") as to_err:
        process = subprocess.Popen(
            command,
            cwd=place,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
        )
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(RUN_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    printed = [path.read_text("utf-8", "replace") for path in (out, err)]
    done = subprocess.CompletedProcess(command, code, *printed)  # type: ignore[arg-type]
    return done, json.loads(result.read_text()) if result.exists() else None


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, **SERVERS.variables(), "PYTHONDONTWRITEBYTECODE": "0", "TMPDIR": str(place / "tmp")}


def last_line(done: subprocess.CompletedProcess[str] | subprocess.CalledProcessError) -> str:
    """What a program said last."""
    lines = [line for line in (done.stderr or done.stdout or "").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""
