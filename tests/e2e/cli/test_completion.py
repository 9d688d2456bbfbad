"""Shell completion, as the shells themselves see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, environment

BIN = Path(sys.executable).parent

PRESS_TAB = """
    eval "$(clutch completion bash)"
    COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _clutch_completion clutch
    printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def run(command: list[str], **variables: str) -> str:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environ = environment() | {"PATH": path, **variables}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("clutch st", {"stop", "stack"}),
        ("clutch recycle --k", {"--kill"}),
        ("clutch run --log-format j", {"json"}),
        ("clutch completion ''", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(words: str, offered: set[str]) -> None:
    assert set(run(["bash", "-c", PRESS_TAB.format(words=words)]).split()) == offered


@pytest.mark.parametrize(("shell", "current"), [("zsh", "1"), ("fish", "dra")])
def test_what_the_script_of_another_shell_asks_is_answered(shell: str, current: str) -> None:
    """`current`: the number of the word that is completed, for fish the word itself."""
    assert "_CLUTCH_COMPLETE" in run(["clutch", "completion", shell])
    asked = {"_CLUTCH_COMPLETE": f"{shell}_complete", "COMP_WORDS": "clutch dra", "COMP_CWORD": current}
    assert "drain" in run(["clutch"], **asked)


def test_another_shell_is_answered_with_those_there_are() -> None:
    done = subprocess.run(
        [BIN / "clutch", "completion", "tcsh"], env=environment(), capture_output=True, text=True, timeout=WAIT_SECONDS
    )
    assert (done.returncode, all(name in done.stderr for name in ("bash", "zsh", "fish"))) == (2, True)
