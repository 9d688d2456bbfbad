"""What users name as `module:function`."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from clutch.errors import ClutchError


class NoSuchName(ClutchError, AttributeError):
    """A module that has nothing of this name."""


def named(module: str, name: str) -> Any:
    """What a module has by this name, which may have dots. Raises NoSuchName or ImportError."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = difflib.get_close_matches(part, dir(found), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise NoSuchName(f"{module} has no {name}{hint}") from None
    return found
