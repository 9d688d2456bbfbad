"""What the demo runs: five tools of the quickstart, what they are given, where the profiles come from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart"
TEXT = ROOT / "LICENSE-APACHE"
WORKERS = 2
ANSWER_MS = 5
_PRESETS = ("process", "thread", "async", "greenlet")


@dataclass(frozen=True, eq=False)
class Case:
    """One tool and its arguments, with words for people."""

    tool: str
    kind: str
    arguments: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Profile:
    """One pool of the demo; the free-threaded one has its own interpreter and is not in the quickstart's config."""

    label: str
    options: dict[str, Any]
    in_config: bool = True

    @property
    def pool_name(self) -> str:
        """The label as a name: what stands before each line that a worker prints."""
        return self.label.replace(", ", "-").replace(" ", "-").lower()


def cases(socket_path: str) -> list[Case]:
    """The tools that are measured."""
    return [
        Case("ask", f"waits {ANSWER_MS} ms on a socket, blocking", {"path": socket_path}),
        Case("ask_async", f"waits {ANSWER_MS} ms on a socket, async def", {"path": socket_path}),
        Case("products", "numpy product, 300 × 300", {"size": 300}),
        Case("primes", "pure-Python CPU work", {"below": 3_000}),
        Case("words", f"counts the words of {TEXT.name}", {"path": str(TEXT)}),
    ]


def profiles() -> list[Profile]:
    """The four of the quickstart's config, and threads without a global lock where there is such an interpreter."""
    found = [Profile(name, {"profile": name, "workers": WORKERS}) for name in _PRESETS]
    if python := _free_threaded_python():
        found.append(Profile("thread, no GIL", {"profile": "thread", "workers": 1, "python": python}, in_config=False))
    return found


def _free_threaded_python() -> str | None:
    """What the environment names, or what `make free-threaded` has finished."""
    environment = ROOT / ".venv-ft"
    usual = str(environment / "bin" / "python") if (environment / ".released").exists() else None
    return os.environ.get("CLUTCH_TEST_FT_PYTHON") or usual
