"""The build backend of the source distribution: maturin, after a look for the compiler that it needs.

Without one, maturin would fetch a toolchain and compile for minutes without a word.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import build_sdist, get_requires_for_build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

STABLE_FROM = (3, 15)
MANIFEST = Path(__file__).parent.parent / "Cargo.toml"


def check_compiler() -> None:
    """Raise SystemExit with what is missing."""
    if sys.platform != "linux":
        raise SystemExit(f"clutch runs on Linux only (pidfd, memfd, subreapers), and this is {sys.platform}")
    match = re.search(r'^rust-version = "(\d+)\.(\d+)"', MANIFEST.read_text(), re.MULTILINE)
    assert match is not None, "the workspace says which Rust it needs"
    wanted = int(match[1]), int(match[2])
    found = version_of(shutil.which("cargo"))
    if found is None or found < wanted:
        there = "there is no cargo on the PATH" if found is None else f"cargo is {found[0]}.{found[1]}"
        raise SystemExit(
            f"clutch has no wheel for this Python or platform, and its source needs Rust {wanted[0]}.{wanted[1]} or "
            f"later: {there}. Install Rust (https://rustup.rs) and a C compiler, or use CPython 3.11 to 3.15 on Linux "
            "(x86-64, AArch64), for which there are wheels"
        )


def version_of(cargo: str | None) -> tuple[int, int] | None:
    if cargo is None:
        return None
    said = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"cargo (\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    check_compiler()
    return maturin.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    check_compiler()
    return maturin.get_requires_for_build_editable(config_settings)


def for_this_python(config_settings: Any) -> dict[str, Any]:
    """The settings, and for a Python that the binding library does not know yet: the extension of the stable ABI."""
    settings = dict(config_settings or {})
    if sys.version_info >= STABLE_FROM:
        os.environ["PYO3_USE_ABI3_FORWARD_COMPATIBILITY"] = "1"
        given = settings.get("build-args") or os.environ.get("MATURIN_PEP517_ARGS", "")
        settings["build-args"] = f"{given if isinstance(given, str) else ' '.join(given)} --features abi3".strip()
    return settings


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return maturin.build_wheel(wheel_directory, for_this_python(config_settings), metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return maturin.build_editable(wheel_directory, for_this_python(config_settings), metadata_directory)


prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
