"""`clutch doctor`, which asks interpreters and imports targets in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clutch.cli import doctor, program


def clutch(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(program, list(arguments), prog_name="clutch", **more)


def test_doctor_as_json_and_as_text() -> None:
    facts = json.loads(clutch("doctor", "--json").stdout)
    assert facts["cpus"]["usable"] >= 1
    assert facts["interpreters"][0]["version"]
    assert set(facts["extras"]) == {"gevent", "uvloop", "watchfiles"}
    text = clutch("doctor").stdout
    assert "usable CPUs" in text
    assert "descriptors" in text


def test_doctor_looks_into_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shopping.py").write_text("import boto3\nprint('hello')\n")
    (tmp_path / "boto3.py").write_text("")
    monkeypatch.chdir(tmp_path)
    found = doctor.look_into("shopping:buy", None)
    assert (found["error"], list(found["unsafe_in_threads"])) == (None, ["boto3"])


def test_doctor_says_why_a_target_does_not_import() -> None:
    done = clutch("doctor", "--target", "no_such_module_here", "--json")
    facts = json.loads(done.stdout)
    assert done.exit_code == 1
    assert "No module named 'no_such_module_here'" in facts["target"]["error"]
    assert any("no_such_module_here" in advice for advice in facts["advice"])
