"""The atlas of libraries: what real ones do in the workers of a pool.

`python tools/libraries` writes docs/libraries.md; with names of cases it runs these. Each is a target that makes at its
import what programs usually make there (a client, a session, a model), and a tool that uses it. It runs in an
environment of its own, with the newest release, by a pool with its defaults. Nothing here is part of CI: to install an
environment takes seconds to minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, STANDARD, Case
from servers import SERVERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/libraries.md"
RUN_SECONDS_MAX = 120
INSTALL_SECONDS_MAX = 600
PROFILES = ("process", "thread", "async", "greenlet")

TARGET = """\
import clutch
{top}


@clutch.tool
def use(n):
{use}
"""

PROGRAM = """\
import json, os, sys, warnings
from clutch import Pool
profile, calls = sys.argv[1], 6


def describe(future):
    try:
        return repr(future.result(60)), None
    except BaseException as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0]}"


if __name__ == "__main__":
    options = {"workers": 2} if profile == "process" else {"workers": 1}
    with Pool("target", profile=profile, **options) as pool:
        made = [pool.options(deadline=20).submit("use", n) for n in range(calls)]
        seen = [describe(one) for one in made]
        pids = sorted({worker["pid"] for worker in pool.stats()["workers"]})
        threads = [len(os.listdir(f"/proc/{pid}/task")) for pid in pids]
        print(json.dumps({"seen": seen, "restarts": pool.stats()["restarts"], "threads": threads}))
"""

AFTER_IMPORT = """\
import json, os, sys
before = set(os.listdir("/proc/self/task"))
import target
threads = len(set(os.listdir("/proc/self/task")) - before)
links = []
for name in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
alone = [repr(target.use(n)) for n in range(6)]
print(json.dumps({"threads": threads, "sockets": sum(link.startswith("socket:") for link in links), "alone": alone}))
sys.stdout.flush()
os._exit(0)
"""


@dataclass
class Outcome:
    """What a case showed."""

    case: Case
    version: str = ""
    threads: int = 0
    """Threads that the import and its use at the top have left."""
    sockets: int = 0
    verdict: str = ""
    said: str = ""
    """Clutch's line about it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--profiles", action="store_true", help="in all four profiles, not by the default one alone")
    parser.add_argument("--keep", type=Path, help="folder of the environments, kept for the next run")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--results", type=Path, help="a file that collects results as JSON, one line a case")
    given = parser.parse_args()
    chosen = [case for case in CASES if not given.cases or case.name in given.cases]
    with tempfile.TemporaryDirectory() as scratch, SERVERS:
        folder = given.keep or Path(scratch)
        profiles = PROFILES if given.profiles else ("process",)
        with ThreadPoolExecutor(given.jobs) as threads:
            outcomes = list(threads.map(lambda case: told(case, folder, profiles, given.results), chosen))
    if not given.cases:
        PAGE.write_text(page(outcomes))
    return 0 if all(one.verdict in ("works", "skipped") or one.case.answered for one in outcomes) else 1


def told(case: Case, folder: Path, profiles: tuple[str, ...], results: Path | None) -> Outcome:
    try:
        outcome = run(case, folder, profiles)
    except subprocess.TimeoutExpired as error:
        outcome = Outcome(case, verdict=f"not installed or run within {error.timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:]
        outcome = Outcome(case, verdict="skipped", said=f"does not install or run here: {''.join(last)[:150]}")
    print(
        f"{case.name}: {outcome.version} {outcome.threads} threads, {outcome.sockets} sockets: {outcome.verdict} "
        f"{outcome.said}",
        flush=True,
    )
    if results is not None:
        with results.open("a") as file:
            row = {name: value for name, value in vars(outcome).items() if name != "case"}
            file.write(json.dumps({"name": case.name, **row}) + "\n")
    return outcome


def run(case: Case, folder: Path, profiles: tuple[str, ...]) -> Outcome:
    if case.server is not None and not SERVERS.has(case.server):
        return Outcome(case, verdict="skipped", said=f"its server is not here: {case.server}")
    place = folder / case.name
    python = environment_of(case, place)
    (place / "target.py").write_text(
        TARGET.format(top=case.top, use="\n".join(f"    {line}" for line in case.use.splitlines()))
    )
    (place / "after_import.py").write_text(AFTER_IMPORT)
    (place / "program.py").write_text(PROGRAM)
    of_library = f"import importlib.metadata as m; print(m.version({case.requires[0].partition('[')[0]!r}))"
    of_python = "import platform; print('CPython', platform.python_version())"
    version = output([python, "-c", of_library if case.requires != STANDARD else of_python], place)
    found = json.loads(output([python, "after_import.py"], place).splitlines()[-1])
    outcome = Outcome(case, version.strip(), found["threads"], found["sockets"])
    for profile in profiles:
        done = subprocess.run(
            [python, "program.py", profile],
            cwd=place,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        outcome.said = said(done.stderr) or outcome.said
        verdict = verdict_of(case, done, found["alone"])
        if verdict != "works":
            outcome.verdict = f"{profile}: {verdict}"
            return outcome
    outcome.verdict = "works"
    return outcome


def verdict_of(case: Case, done: subprocess.CompletedProcess[str], alone: list[str]) -> str:
    if done.returncode != 0:
        return f"the program ends with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if result["restarts"]:
        return f"{result['restarts']} workers died: {next(filter(None, (error for _, error in result['seen'])), '')}"
    values = [value for value, _ in result["seen"]]
    errors = [error for _, error in result["seen"] if error is not None]
    if errors:
        return f"{len(errors)} of {len(values)} calls raise: {errors[0]}"
    if case.is_random and len(set(values)) < len(values):
        return f"equal numbers in two workers: {values}"
    return "works" if values == alone or case.differs or case.is_random else f"other answers: {values}"


def said(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if "warning: " in line or "info: " in line or "importing" in line]
    return " ".join(lines[0].split())[:300] if lines else ""


def environment_of(case: Case, place: Path) -> str:
    python = place / "env/bin/python"
    if not python.exists():
        venv.create(place / "env", with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *case.requires]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
        own = ["cloudpickle", "pydantic", "rich", "typer", *(["gevent"] if case.in_greenlets else [])]
        subprocess.run([*command[:6], *own], check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    site = next((place / "env/lib").glob("python*/site-packages"))
    (site / "clutch.pth").write_text(f"{ROOT / 'python'}\n")
    return str(python)


def environment() -> dict[str, str]:
    return {**os.environ, **SERVERS.variables(), "PYTHONDONTWRITEBYTECODE": "0"}


def output(command: list[str], place: Path) -> str:
    return subprocess.run(
        command, cwd=place, env=environment(), check=True, capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    ).stdout


def page(outcomes: list[Outcome]) -> str:
    rows = [
        f"| {one.case.name} | {one.version} | {one.threads} | {one.sockets} | {one.case.what} | "
        f"{': '.join(filter(None, (one.verdict, one.case.answered)))} | {one.said.replace('|', chr(92) + '|')} |"
        for one in sorted(outcomes, key=lambda one: one.case.name)
    ]
    return "\n".join([HEAD, *rows, ""])


HEAD = """\
# Libraries

<!-- Written by `python tools/libraries`. Do not edit. -->

What real libraries do in the workers of a pool with its defaults: two workers, forked from a zygote that has imported
the target, or its libraries alone where the target left threads, connections or open databases (`preload = "auto"`,
[processes.md](processes.md#preload)). Each target makes at its import what programs usually make there, and uses it;
the pool calls a tool six times that uses it again, and its answers are those of a program without a pool.

| library | version | threads after import | sockets | made at import | in a pool | said |
|---|---|---|---|---|---|---|"""


if __name__ == "__main__":
    sys.exit(main())
