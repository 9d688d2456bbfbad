"""Prints docs/api.md, made from the signatures and docstrings of the package: `python tools/api_page.py`."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import clutch
from clutch import _core, dispatcher, errors, insights, jobs, testing
from clutch._pool.calls import Calls

WIDTH_MAX = 100
"""Of a signature on one line."""
NOTHING = "\n"
"""The text of what has no docstring."""

INTRODUCTION = """\
# Python API

<!-- Generated from docstrings by `make docs`. Do not edit. -->

Everything is in the package `clutch`, except for the test helpers in `clutch.testing`. A duration is a number of
seconds or a string such as `"250ms"`, `"90s"` or `"5m"`; a size is a number of bytes or a string such as `"512MB"`. The
options of pools and of served apps are in [config.md](config.md).
"""

# The order of the page. Of a class: its methods and properties; those from elsewhere as pairs.
POOL = (
    ("call", Calls.call),
    ("submit", Calls.submit),
    ("map", Calls.map),
    ("stream", Calls.stream),
    "options",
    "wait_ready",
    "stats",
    "running",
    "insights",
    "stacks",
    "cancel",
    "reload",
    "recycle",
    "scale",
    "share",
    "drain",
    "resume",
    "shutdown",
    "terminate_workers",
    "kill_workers",
)
FUTURE = [
    (name, vars(_core.Completion)[name]) for name in ("result", "exception", "done", "running", "cancel", "work_id")
]
PARTS: tuple[tuple[str, tuple[tuple[Any, tuple[Any, ...]], ...]], ...] = (
    (
        "Pools",
        (
            (clutch.Pool, POOL),
            (clutch.Future, tuple(FUTURE)),
            (clutch.Stream, (("close", _core.StreamCore.close), "aclose")),
            (clutch.Shared, ("value",)),
            (clutch.Insights, ("start", "wait", "run")),
            (insights.SlowCall, ()),
        ),
    ),
    (
        "Tools and hooks",
        (
            (clutch.tool, ()),
            (clutch.on_start, ()),
            (clutch.on_stop, ()),
            (clutch.call_headers, ()),
            (clutch.HttpProblem, ()),
        ),
    ),
    (
        "Configurations",
        (
            (clutch.Dispatcher, ("start", "wait_ready", "addresses", "reload", "reopen_logs", "stop")),
            (dispatcher.Observer, ()),
        ),
    ),
    (
        "Jobs",
        (
            (
                clutch.Jobs,
                (
                    "enqueue",
                    "enqueue_many",
                    "options",
                    "result",
                    "get",
                    "list",
                    "each",
                    "stats",
                    "runners",
                    "cancel",
                    "retry",
                    "delete",
                    "pause",
                    "resume",
                    "limit",
                    "aenqueue",
                    "aenqueue_many",
                    "wait",
                    "aresult",
                    "await_end",
                    "aget",
                    "alist",
                    "astats",
                    "arunners",
                    "acancel",
                    "aretry",
                    "schedule",
                    "schedules",
                    "pause_schedule",
                    "resume_schedule",
                    "unschedule",
                    "run_schedule",
                    "aschedule",
                    "aschedules",
                    "apause_schedule",
                    "aresume_schedule",
                    "aunschedule",
                    "arun_schedule",
                ),
            ),
            (jobs.JobOptions, ()),
            (jobs.JobId, ()),
            (jobs.Job, ()),
            (jobs.JobError, ()),
            (jobs.Queue, ()),
            (jobs.Runner, ()),
            (jobs.Schedule, ()),
            (clutch.current_job, ()),
            (jobs.CurrentJob, ("checkpoint", "progress")),
            (clutch.Snooze, ()),
            (clutch.Cancel, ()),
            (clutch.Retry, ()),
            (clutch.Dead, ()),
        ),
    ),
    (
        "Served apps",
        (
            (clutch.serve, ()),
            (clutch.serving, ()),
            (clutch.AppServer, ("addresses", "url", "reload", "stop")),
        ),
    ),
    (
        "Errors",
        tuple(
            (error, ())
            for error in (
                errors.ClutchError,
                clutch.WorkerLost,
                errors.DeadlineExceeded,
                errors.Overloaded,
                errors.Draining,
                errors.Poisoned,
                errors.StoreError,
                errors.StoreUnavailable,
                errors.JobFailed,
                errors.PoolClosed,
                errors.BadArguments,
                errors.RemoteError,
                errors.NoSuchTool,
                errors.NoSuchPool,
                errors.ConfigError,
                errors.Problem,
                errors.Interrupted,
            )
        ),
    ),
    (
        "Testing",
        (
            (testing.InlinePool, ()),
            (testing.inline, ()),
            (testing.drain, ()),
            (testing.adrain, ()),
            (testing.Drained, ()),
            (testing.assert_enqueued, ()),
            (testing.assert_not_enqueued, ()),
            (testing.temporary_store, ()),
            (testing.clock, ()),
            (testing.Clock, ("now", "advance")),
            (testing.watch, ()),
            (testing.Watch, ("wait", "until", "all")),
            (testing.Processes, ("below", "alive", "wait_ended", "send", "close")),
        ),
    ),
)


class Text:
    """A value that is shown as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def page() -> str:
    """docs/api.md."""
    lines = [INTRODUCTION, *index(), *(line for part in PARTS for line in part_lines(*part))]
    return "\n".join(line for line in lines if line != NOTHING)


def index() -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for title, entries in PARTS:
        names = ", ".join(f"[`{value.__name__}`](#{value.__name__.lower()})" for value, _ in entries)
        yield f"| {title} | {names} |"
    yield ""


def part_lines(title: str, entries: tuple[tuple[Any, tuple[Any, ...]], ...]) -> Iterator[str]:
    yield f"## {title}\n"
    for value, members in entries:
        yield from entry_lines(value, members)


def entry_lines(value: Any, members: tuple[Any, ...]) -> Iterator[str]:
    yield f"### {value.__name__}\n"
    if inspect.isclass(value):
        yield from class_lines(value)
    else:
        yield fenced(signature(value.__name__, value))
        yield prose(value)
    for member in members:
        name, holder = (member, inspect.getattr_static(value, member)) if isinstance(member, str) else member
        yield from member_lines(value.__name__, name, holder)


def class_lines(value: type) -> Iterator[str]:
    bases = [base.__name__ for base in value.__bases__ if not base.__name__.startswith(("_", "Calls", "object"))]
    if issubclass(value, BaseException):
        yield f"A subclass of {', '.join(f'`{base}`' for base in bases)}.\n"
    elif is_made_by_users(value):
        yield fenced(signature(value.__name__, value.__init__))
    yield prose(value)
    if is_made_by_users(value) and value.__init__.__doc__:
        yield prose(value.__init__)
    rows = [f"| `{name}` | {doc} |" for name, doc in attributes(value)]
    if rows:
        yield "\n".join(["| attribute | |", "|---|---|", *rows, ""])


def is_made_by_users(value: type) -> bool:
    return value in {clutch.Pool, testing.InlinePool, testing.Processes}


def member_lines(owner: str, name: str, holder: Any) -> Iterator[str]:
    if isinstance(holder, (classmethod, staticmethod)):
        holder = holder.__func__
    yield f"#### {owner}.{name}\n"
    if callable(holder):
        yield fenced(signature(name, holder))
    yield prose(holder)


def signature(name: str, function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    parameters = [shown(each) for each in found.parameters.values() if each.name not in {"self", "cls", "session"}]
    found = found.replace(parameters=parameters, return_annotation=shown_annotation(found.return_annotation))
    line = f"{name}{found}"
    if name[0].isupper():
        line = line.removesuffix(" -> None")
    return line if len(line) <= WIDTH_MAX else broken(name, found, line)


def broken(name: str, found: inspect.Signature, line: str) -> str:
    """One parameter a line."""
    empty = str(found.replace(parameters=[]))
    end = empty.removeprefix("()") if " -> " in line.rpartition(")")[2] else ""
    inside = str(found.replace(return_annotation=inspect.Signature.empty))[1:-1]
    return f"{name}(\n" + "".join(f"    {part},\n" for part in split(inside)) + f"){end}"


def split(parameters: str) -> Iterator[str]:
    """At the commas that are in no bracket."""
    depth, begun = 0, 0
    for at, character in enumerate(parameters):
        depth += (character in "[({") - (character in "])}")
        if character == "," and depth == 0:
            yield parameters[begun:at].strip()
            begun = at + 1
    yield parameters[begun:].strip()


def shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    quoted = Text(json.dumps(default)) if isinstance(default, str) else default
    return parameter.replace(annotation=shown_annotation(parameter.annotation), default=quoted)


def shown_annotation(annotation: Any) -> Any:
    return Text(annotation) if isinstance(annotation, str) else annotation


def fenced(text: str) -> str:
    return f"```py\n{text}\n```\n"


def prose(value: Any) -> str:
    """Its docstring, whose pages are links here."""
    text = inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text) + "\n"


def attributes(value: type) -> Iterator[tuple[str, str]]:
    """Public attributes that classes of the package give their instances, with the text below each."""
    for base in reversed(value.__mro__):
        if base.__module__.startswith("clutch") and base is not value and issubclass(value, BaseException):
            yield from own_attributes(base)
    if (
        issubclass(value, BaseException)
        or hasattr(value, "__dataclass_fields__")
        or value in {testing.Watch, testing.Clock}
    ):
        yield from own_attributes(value)


@functools.cache
def own_attributes(value: type) -> list[tuple[str, str]]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(tree, ast.ClassDef)
    bodies = [tree.body, *inits(tree)]
    found = []
    for body in bodies:
        for statement, after in zip(body, [*body[1:], None], strict=True):
            name = target_of(statement)
            if name and not name.startswith("_"):
                found.append((name, text_of(after)))
    return found


def inits(tree: ast.ClassDef) -> Iterator[list[ast.stmt]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield node.body


def target_of(statement: ast.stmt) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    match targets:
        case [ast.Attribute(value=ast.Name(id="self"), attr=name)] | [ast.Name(id=name)]:
            return name
    return None


def text_of(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


if __name__ == "__main__":
    print(page(), end="")
