"""The import path of an app object, for workers: `main:app` for the object `app` of `main.py`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from clutch.errors import ConfigError, Problem

WHAT_TO_WRITE = """the import path of an app at module level, as text: clutch.serve("package.module:app"). \
Write an app of a notebook to a file (%%writefile web.py); for an app that a function creates, use \
clutch.serve("package.module:make", factory=True)"""


def name_of_app(app: Any) -> str:
    """Return the import path of an app. Raise `ConfigError` if workers could not import it."""
    if isinstance(app, str):
        return app
    for module in _modules(app):
        attribute = _attribute(module, app)
        if attribute is not None and (name := importable_name(module)) is not None:
            return f"{name}:{attribute}"
    what = "workers import the app by its name, and this object is not at the top level of a module"
    raise ConfigError(problems=[Problem("app", what, repr(app), WHAT_TO_WRITE)])


def _modules(app: Any) -> Iterator[ModuleType]:
    """Yields modules that may have the app: the one that it names, the program's own, any other."""
    own = sys.modules.get(getattr(app, "__module__", None) or "")
    first = [module for module in (own, sys.modules.get("__main__")) if module is not None]
    yield from first
    yield from (module for module in list(sys.modules.values()) if isinstance(module, ModuleType))


def _attribute(module: ModuleType, app: Any) -> str | None:
    names = (name for name, value in list(vars(module).items()) if value is app)
    # What begins with an underscore is a prompt's last value, or nobody else's business.
    return next((name for name in names if name.isidentifier() and not name.startswith("_")), None)


def importable_name(module: ModuleType) -> str | None:
    """None: there is no file, or by this name another module would be found."""
    if module.__name__ not in ("__main__", "__mp_main__"):
        return module.__name__ if getattr(module, "__spec__", None) is not None else None
    spec = module.__spec__
    if spec is not None and spec.name not in ("", "__main__"):  # python -m package.module
        return spec.name
    path = getattr(module, "__file__", None)
    name = os.path.splitext(os.path.basename(path))[0] if path else ""
    if not path or not name.isidentifier():
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    is_same = (
        found is not None and found.origin is not None and os.path.realpath(found.origin) == os.path.realpath(path)
    )
    return name if is_same else None
