"""TARGET of the lab's commands: what it names, and what to write where it is something else.

Sources of modules are read, and never run: the processes that measure import them.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import re
import sys
from pathlib import Path

import click

from clutch.cli.kinds import APP, TCP, Kind

ALLOWED = "allowed are MODULE:FUNCTION, such as tools:resize, and (by `clutch bench`) http://HOST:PORT/PATH"
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]*):\d+(/.*)?|(localhost|[\w-]+(\.[\w-]+)+)/.*|localhost")
"""Of a server, without `http://`."""
FACTORY = re.compile(r"(create|make|get|build)_(\w+_)?(app|application)")
LISTED_MAX = 5

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_url(target: str) -> bool:
    """Raises UsageError for https, which is not measured."""
    if target.startswith("https://"):
        raise click.UsageError(f"{target}: TLS is not measured; name a server without it, as http://HOST:PORT/PATH")
    return target.startswith("http://")


def module_and_name(target: str) -> tuple[str, str]:
    """Raises UsageError for what is not MODULE:NAME, with what is likely meant."""
    module, colon, name = target.partition(":")
    if colon and name and re.fullmatch(r"[\w.-]+", module) and not module.endswith(".py") and not name[0].isdigit():
        return module, name
    if ADDRESS.fullmatch(target):
        near = f"a server that runs is named by its URL: write http://{'localhost' if not module else ''}{target}"
    elif module.endswith(".py") or "/" in module:
        near = f"a module is named as in `import`: write {dotted(module)}:{name or 'FUNCTION'}"
    else:
        near = near_module(target.removesuffix(":"))
    raise click.UsageError(f"{target!r} is no TARGET: {near + '; ' if near else ''}{ALLOWED}")


def dotted(path: str) -> str:
    """A file as a module, from this folder; of one elsewhere its name."""
    place = Path(path.removesuffix(".py"))
    return place.name if place.is_absolute() or ".." in place.parts else ".".join(place.parts)


def near_module(target: str) -> str | None:
    """What to write for `tools` or `tools.resize`, where that module is there."""
    if (inside := definitions(target)) is not None:
        functions = [name for name, one in inside.items() if not isinstance(one, ast.ClassDef) and name[0] != "_"]
        listed = f" (it has {', '.join(functions[:LISTED_MAX])})" if functions else ""
        return f"write {target}:FUNCTION{listed}"
    module, _, name = target.rpartition(".")
    return f"write {module}:{name}" if module and definitions(module) is not None else None


def check(target: str, kind: Kind) -> str | None:
    """Returns a warning where a factory of apps would be called as a function. Raises UsageError where the source
    shows that it cannot be measured so."""
    module, name = module_and_name(target)
    if kind is APP:
        return refuse_factory(module, name)
    if name.endswith("()"):
        instead = "name the handler itself" if kind is TCP else f"to serve the app that it makes: '{target}' --path /"
        raise click.UsageError(f"{target} has (), which only an app has; {instead}")
    return None if kind is TCP else of_calls(module, name)


def refuse_factory(module: str, name: str) -> None:
    """Raises UsageError for an app that takes nothing."""
    found = (definitions(module) or {}).get(name)
    if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) and takes_nothing(found):
        raise click.UsageError(
            f"{module}:{name} takes no arguments, so it is no ASGI or WSGI app; if it makes the app: "
            f"write '{module}:{name}()'"
        )


def of_calls(module: str, name: str) -> str | None:
    """A method needs an object, which a name cannot say. Raises UsageError."""
    owner, dot, method = name.partition(".")
    if dot and is_method((definitions(module) or {}).get(owner), method):
        raise click.UsageError(
            f"{module}:{name} is a method, which needs an object: write a function that calls "
            f"{owner}(…).{method}(…), and name that"
        )
    if FACTORY.fullmatch(name):
        return f"{module}:{name} is called as a function; for the app that it makes: '{module}:{name}()' --path /"
    return None


def takes_nothing(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    return not (given.posonlyargs or given.args or given.vararg or function.decorator_list)


def is_method(owner: Definition | None, name: str) -> bool:
    """Whether the class has a method of its own that is called on an object."""
    if not isinstance(owner, ast.ClassDef):
        return False
    found = next((one for one in owner.body if isinstance(one, Definition) and one.name == name), None)
    bound = {"staticmethod", "classmethod"}
    return isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
        ast.unparse(decorator) in bound for decorator in found.decorator_list
    )


def definitions(module: str) -> dict[str, Definition] | None:
    """Functions and classes of a module by name, read from its source. None: there is no such module."""
    if (file := file_of(module)) is None:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}  # whoever imports it says what is wrong
    return {one.name: one for one in tree.body if isinstance(one, Definition)}


def file_of(module: str) -> Path | None:
    """Its source, found as `import` finds it, but without importing the packages that it is in."""
    places: list[str] | None = [os.getcwd(), *sys.path]
    spec, parts = None, module.split(".")
    for count in range(1, len(parts) + 1):
        if not parts[count - 1] or places is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:count]), places)
        places = None if spec is None else spec.submodule_search_locations
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
