"""Exceptions on their way to the caller: described so that nothing about them can break the worker.

An exception may have an odd constructor, refuse to be pickled, be cyclic or huge; its description is bounded and
always there.
"""

from __future__ import annotations

import json
import pickle
import sys
import traceback
import types

from clutch._pickle import dumps
from clutch.errors import BadArguments, Interrupted, NoSuchTool

MESSAGE_CHARACTERS_MAX = 64_000
TRACEBACK_CHARACTERS_MAX = 256_000
PICKLE_BYTES_MAX = 1_000_000

CARRIERS = (
    "/clutch/_worker/",
    "/clutch/_jobs/",
    "/clutch/django/",
    "/asyncio/",
    "/anyio/_backends/",
    "uvloop/loop.pyx",
    "/concurrent/futures/",
    "/importlib/__init__.py",
    "/runpy.py",
    "<frozen ",
)
"""Files of the frames between a worker's loop, or an import, and the user's code."""

Description = tuple[str, str, str, str, bytes, bytes]
"""Kind, type name, message, traceback (for `bad_arguments`: the problems as JSON), pickled exception or nothing,
problem document of an `HttpProblem` or nothing."""


def was_interrupted(error: BaseException | None) -> bool:
    """Returns whether an interrupt caused this exception, possibly through exceptions of user code."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Interrupted):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class SaysItAll(Exception):
    """Raised by Clutch about user code: its traceback leaves out the frames of Clutch."""


def describe(error: BaseException) -> Description:
    """Describe an exception for the caller."""
    if type(error) is BadArguments:
        return "bad_arguments", "", message_of(error), json.dumps(error.problems, default=str), b"", b""
    if type(error) is NoSuchTool:
        return "no_such_tool", "", message_of(error), "", b"", b""
    kind = "encode" if getattr(error, "is_encode_error", False) else "raised"
    return kind, type_name(error), message_of(error), traceback_of(error), pickled(error), problem_of(error)


def type_name(error: BaseException) -> str:
    kind = type(error)
    return written(kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}")


def message_of(error: BaseException) -> str:
    return text_of(error)


def text_of(value: object) -> str:
    """For people: the beginning of its `str()`, as valid UTF-8."""
    try:
        return written(str(value)[:MESSAGE_CHARACTERS_MAX])
    except BaseException as second:
        return f"<its str() raised {type(second).__name__}>"


def traceback_of(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, users_frames(error))
        return written("".join(lines)[-TRACEBACK_CHARACTERS_MAX:])
    except BaseException as second:
        return f"<its traceback cannot be printed: {type(second).__name__}>\n"


def written(text: str) -> str:
    """Make text valid UTF-8: names of files may contain surrogates, which are escaped as in tracebacks."""
    return text.encode("utf-8", "backslashreplace").decode()


def users_frames(error: BaseException) -> types.TracebackType | None:
    """The traceback from the first frame of user code on."""
    frames = error.__traceback__
    while frames is not None and any(part in frames.tb_frame.f_code.co_filename for part in CARRIERS):
        frames = frames.tb_next
    # A SyntaxError of a file says itself where it is.
    return frames if frames or isinstance(error, SyntaxError | SaysItAll) else error.__traceback__


def problem_of(error: BaseException) -> bytes:
    """The document that callers over HTTP get, or nothing if it is not an `HttpProblem`, or can be no document."""
    module = sys.modules.get("clutch.http_problem")  # imported by whoever has made one
    try:
        return module.document_of(error) if module is not None and isinstance(error, module.HttpProblem) else b""
    except Exception:  # changed since it was made
        return b""


def pickled(error: BaseException) -> bytes:
    """The pickled exception, or nothing if it is too large or cannot be unpickled. Local classes are sent by value."""
    try:
        body = dumps(error)
        if len(body) > PICKLE_BYTES_MAX or type(pickle.loads(body)) is not type(error):
            return b""
    except BaseException:
        return b""
    return body
