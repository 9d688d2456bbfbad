"""What users name as `module:function`."""

from __future__ import annotations

import importlib
from typing import Any


def named(module: str, name: str) -> Any:
    """What a module has by this name, which may have dots. Raises AttributeError or ImportError."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
