"""docs/celery-settings.md says of every setting of Celery what it is to Clutch, once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "celery-settings.md"


def named() -> Counter[str]:
    """Settings that the first cells of its tables name; `beat_*` for all that begin so."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return Counter(name for row in rows for name in re.findall(r"`([a-z0-9_]+\*?)`", row))


def test_every_setting_of_celery_is_in_one_row() -> None:
    defaults = pytest.importorskip("celery.app.defaults")
    names = named()
    groups = {name.removesuffix("*") for name in names if name.endswith("*")}
    assert [name for name, times in names.items() if times > 1] == []
    unknown = {name for name in names if not name.endswith("*")} - defaults.SETTING_KEYS
    assert unknown == set()
    left = {key for key in defaults.SETTING_KEYS if key not in names and not key.startswith(tuple(groups))}
    assert left == set()
    assert all(any(key.startswith(group) for key in defaults.SETTING_KEYS) for group in groups)
