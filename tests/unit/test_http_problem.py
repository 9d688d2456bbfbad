"""`clutch.HttpProblem`: what it can be, what is refused, and that it survives pickling."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from clutch import HttpProblem, tool
from clutch.errors import ClutchError
from clutch.http_problem import DECLARED_MAX, TEXT_CHARACTERS_MAX, document_of


class NoUser(HttpProblem):
    status = 404
    type = "urn:shop:no-user"

    def __init__(self, nr: int, *, hint: str) -> None:
        super().__init__(detail=f"no user {nr}", hint=hint)
        self.nr = nr


def test_a_problem_with_members() -> None:
    error = HttpProblem(404, "urn:shop:no-user", "no user 7", user=7, instance="/users/7")
    assert json.loads(document_of(error)) == {
        "type": "urn:shop:no-user",
        "title": "Not Found",
        "status": 404,
        "detail": "no user 7",
        "user": 7,
        "instance": "/users/7",
    }
    assert (str(error), not isinstance(error, ClutchError)) == ("no user 7", True)


def test_a_status_alone() -> None:
    error = HttpProblem(499)
    assert json.loads(document_of(error)) == {"type": "about:blank", "title": "Status 499", "status": 499, "detail": ""}
    assert str(error) == "Status 499"


def test_pickling_keeps_all_whatever_the_constructor_takes() -> None:
    error = NoUser(7, hint="ask ann")
    error.add_note("seen by a test")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.nr, copy.members) == (NoUser, "no user 7", 7, {"hint": "ask ann"})
    assert (document_of(copy), copy.__notes__) == (document_of(error), ["seen by a test"])


@pytest.mark.parametrize(
    ("given", "members", "what"),
    [
        ((), {}, "HttpProblem has no status: allowed are 400 to 599"),
        ((399,), {}, "status 399"),
        ((600,), {}, "status 600"),
        ((True,), {}, "status True"),
        (("404",), {}, "status '404'"),
        ((404, "no user"), {}, "has the type 'no user'.*a sentence is the detail: "),
        ((404, ""), {}, "has the type ''"),
        ((404, "x" * 501), {}, "up to 500 visible ASCII"),
        ((404, "urn:a", 7), {}, "the detail 7 of a problem: allowed is text"),
        ((404,), {"title": 7}, "the title 7"),
        ((404,), {"rows": object()}, r"cannot be written as JSON: \$\.rows"),
        ((404,), {"rows": float("nan")}, r"\$\.rows"),
        ((404,), {"rows": "x" * 70_000}, "allowed are 65,536"),
    ],
)
def test_what_no_document_can_say_is_refused(given: tuple[Any, ...], members: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        HttpProblem(*given, **members)


def test_long_and_broken_texts_are_written_all_the_same() -> None:
    error = HttpProblem(404, detail="\ud800" + "x" * TEXT_CHARACTERS_MAX)
    detail = json.loads(document_of(error))["detail"]
    assert (len(detail), detail[:2], detail[-1]) == (TEXT_CHARACTERS_MAX + 1, "?x", "…")


@pytest.mark.parametrize(
    ("raises", "what"),
    [
        ([HttpProblem], "HttpProblem has no status"),
        ([ValueError], r"allowed are subclasses of clutch\.HttpProblem"),
        ([404], r"allowed are subclasses of clutch\.HttpProblem"),
        (NoUser, "allowed is a list"),
        ([NoUser] * (DECLARED_MAX + 1), f"allowed are {DECLARED_MAX}"),
    ],
)
def test_what_a_tool_cannot_declare_is_refused(raises: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        tool(raises=raises)
