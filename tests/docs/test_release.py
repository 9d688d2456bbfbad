"""The release workflow calls what is there and pinned; README's links hold where it is shown without this folder."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]


def uncommented() -> str:
    return "".join(path.read_text() for path in WORKFLOWS)


def test_actions_are_pinned_to_commits_and_say_their_version() -> None:
    used = re.findall(r"uses: *(.*)", uncommented())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = re.findall(r"\bmake ((?:[a-z-]+ ?)+)", "\n".join(re.findall(r"run: *(.*)", uncommented())))
    targets = {target for targets in called for target in targets.split() if not target.startswith("-")}
    assert targets >= {"wheels", "sdist", "test-wheel", "version"}
    for target in targets:
        assert re.search(rf"(?m)^{target}:", makefile), target


def test_only_the_last_job_may_publish_and_no_job_may_write() -> None:
    for path in WORKFLOWS:
        top, *jobs = re.split(r"(?m)^  (?=[a-z-]+:$)", path.read_text().split("\njobs:\n")[1])
        assert "\npermissions: {}\n" in path.read_text()
        granted = {job.split(":")[0]: re.findall(r"(?m)^      ([a-z-]+: (?:read|write))\b", job) for job in jobs}
        assert granted.pop("publish") == ["id-token: write"]
        assert not top
        assert all(permissions == ["contents: read"] for permissions in granted.values())


def test_links_of_the_readme_are_absolute_and_lead_into_this_folder() -> None:
    """The package index shows it, too, and there is no folder around it there."""
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    assert links
    for link in links:
        assert link.startswith(("https://", "#")), link
        if own := re.fullmatch(rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/([^#]+)(?:#.*)?", link):
            assert (ROOT / own[1]).exists(), link
        else:
            assert not link.startswith(REPOSITORY), link
