"""Errors of tools that callers over HTTP get with a status and a type of their own.

Owns the exception and its rules; it imports no other part of Clutch unless a member needs pydantic to be written.
Promises that whatever can be made can be written: `document` is a problem document (RFC 9457) of bounded size.
"""

from __future__ import annotations

import inspect
import json
import re
from http import HTTPStatus
from typing import Any, ClassVar

STATUS_MIN, STATUS_MAX = 400, 599
TYPE = re.compile(r"[!-~]{1,500}")
"""A URI reference, such as `urn:shop:no-user`: visible ASCII characters."""

TEXT_CHARACTERS_MAX = 10_000
"""Maximum length of `title` and `detail`; the rest is cut."""

MEMBERS_BYTES_MAX = 64 << 10
"""Maximum size of the members as JSON."""

DECLARED_MAX = 50
"""Maximum number of problems that a tool declares."""

OWN = ("type", "title", "status", "detail")
BLANK = "about:blank"


class HttpProblem(Exception):
    """Raised by a tool: callers over HTTP get this status, and a problem document (RFC 9457).

        raise clutch.HttpProblem(404, "urn:shop:no-user", "no user 7", user=7)

    `status`: 400 to 599. `type`: a URI that programs can tell the error by; default `about:blank`, which says no more
    than the status. `detail`: what happened this time, for people. `title`: the same for each of this type; default:
    the phrase of the status. `members`: further members of the document, of what JSON has, up to 64 KiB.

    A subclass can have `status`, `type` and `title` as attributes; `@tool(raises=[NoUser])` then lists it in
    `/openapi.json`:

        class NoUser(clutch.HttpProblem):
            status = 404
            type = "urn:shop:no-user"

        raise NoUser(detail="no user 7")

    To callers in Python, and to jobs, it is an exception like any other. Raises ValueError for what no document can
    say.
    """

    status: int = 0
    type: str = BLANK
    title: str = ""
    detail: str = ""

    _given: ClassVar[tuple[str, ...]] = ("status", "type", "detail", "title")

    def __init__(
        self,
        status: int | None = None,
        type: str | None = None,  # noqa: A002 - the name in the document
        detail: str | None = None,
        *,
        title: str | None = None,
        **members: Any,
    ) -> None:
        for name, value in zip(self._given, (status, type, detail, title), strict=True):
            if value is not None:
                setattr(self, name, value)
        self.members = members
        super().__init__(self.detail)
        document_of(self)

    def __str__(self) -> str:
        return self.detail or title_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.__class__, self.args, self.__dict__.copy())


def _rebuild(kind: type[HttpProblem], args: tuple[Any, ...], attributes: dict[str, Any]) -> HttpProblem:
    """Makes it again whatever the arguments of a subclass are."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def check_declared(given: Any) -> None:
    """Raises ValueError unless each is a kind of problem that has a status."""
    if not isinstance(given, tuple | list):
        raise ValueError(f"raises {str(given)[:100]}: allowed is a list, such as raises=[NoUser]")
    if len(given) > DECLARED_MAX:
        raise ValueError(f"raises has {len(given)} problems: allowed are {DECLARED_MAX}")
    for one in given:
        if not (isinstance(one, HttpProblem) or (isinstance(one, type) and issubclass(one, HttpProblem))):
            raise ValueError(
                f"raises {str(one)[:100]}: allowed are subclasses of clutch.HttpProblem with a status, and examples "
                'such as HttpProblem(404, "urn:shop:no-user")'
            )
        check_kind(one)


def declared(one: HttpProblem | type[HttpProblem]) -> dict[str, Any]:
    """Returns what callers are told of a kind of problem."""
    text = inspect.getdoc(one) if isinstance(one, type) and one is not HttpProblem and one.__doc__ else None
    told = _cut((text or getattr(one, "detail", "")).partition("\n")[0])
    return {"status": int(one.status), "type": one.type, "title": _cut(title_of(one)), "description": told}


def title_of(problem: HttpProblem | type[HttpProblem]) -> str:
    try:
        return problem.title or HTTPStatus(problem.status).phrase
    except ValueError:
        return f"Status {problem.status}"


def check_kind(problem: HttpProblem | type[HttpProblem]) -> None:
    """Raises ValueError unless its status and its type can be those of a problem document."""
    name = (problem if isinstance(problem, type) else type(problem)).__qualname__
    status, kind = problem.status, problem.type
    if isinstance(status, bool) or not isinstance(status, int) or not STATUS_MIN <= status <= STATUS_MAX:
        given = f"status {status!r}" if status else "no status"
        raise ValueError(f"{name} has {given}: allowed are {STATUS_MIN} to {STATUS_MAX}")
    if not isinstance(kind, str) or not TYPE.fullmatch(kind):
        allowed = "a URI such as 'urn:shop:no-user', up to 500 visible ASCII characters"
        hint = "; a sentence is the detail: HttpProblem(404, detail=…)" if " " in str(kind) else ""
        raise ValueError(f"{name} has the type {str(kind)[:100]!r}: allowed is {allowed}{hint}")


def document_of(problem: HttpProblem) -> bytes:
    """Return the problem document as JSON. Raises ValueError where there can be none."""
    check_kind(problem)
    for name in ("title", "detail"):
        if not isinstance(getattr(problem, name), str):
            raise ValueError(f"the {name} {getattr(problem, name)!r} of a problem: allowed is text")
    if taken := [name for name in OWN if name in problem.members]:
        raise ValueError(f"a problem has its own {', '.join(taken)}; name the member otherwise")
    members = _members(problem.members)
    if len(members) > MEMBERS_BYTES_MAX:
        raise ValueError(f"the members of a problem have {len(members):,} bytes; allowed are {MEMBERS_BYTES_MAX:,}")
    own = {
        "type": problem.type,
        "title": _cut(title_of(problem)),
        "status": int(problem.status),
        "detail": _cut(problem.detail),
    }
    head = json.dumps(own, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return head if members == b"{}" else head[:-1] + b"," + members[1:]


def _members(members: dict[str, Any]) -> bytes:
    if not members:
        return b"{}"
    try:
        return json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        from clutch._worker.handlers.json import EncodeError, Encoder
    try:
        return Encoder(takes_bytes=False).encode(members)
    except EncodeError as error:
        raise ValueError(f"a member of a problem cannot be written as JSON: {error}") from None


def _cut(text: str) -> str:
    # Escapes of half characters would make JSON of their own.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"
