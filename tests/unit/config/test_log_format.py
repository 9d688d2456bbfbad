"""The formats of the access log: gunicorn's atoms and granian's, read once."""

from __future__ import annotations

import pytest

from clutch.config.log_format import ATOMS, EXAMPLE, WrongFormat, for_core, parse
from clutch.dispatcher import logs_cpu


def line(text: str) -> list[dict[str, str]]:
    assert parse(text) == text
    return for_core(text)["line"]


def test_gunicorns_own_default() -> None:
    found = line('%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s"')
    facts = ["client", "user", "date", "request_line", "status", "response_bytes"]
    assert [piece["fact"] for piece in found if "fact" in piece] == facts
    assert [piece["request_header"] for piece in found if "request_header" in piece] == ["referer", "user-agent"]


def test_granians_own_default() -> None:
    found = line('[%(time)s] %(addr)s - "%(method)s %(path)s %(protocol)s" %(status)d %(dt_ms).3f')
    facts = ["iso_date", "client", "method", "path", "protocol", "status", "decimal_millis"]
    assert [piece["fact"] for piece in found if "fact" in piece] == facts


@pytest.mark.parametrize("name", ATOMS)
def test_every_atom(name: str) -> None:
    assert line(f"%(h)s%({name})s")[1] == ATOMS[name]


def test_headers_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELEASE", "r1\n")
    found = line("%({X-Id}i)s%({X-Of-App}o)s%({http_x_id}e)s%({QUERY_STRING}e)s%({RELEASE}e)s%({NONE_SUCH}e)s%%")
    assert found == [
        {"request_header": "x-id"},
        {"response_header": "x-of-app"},
        {"request_header": "x-id"},
        {"fact": "query"},
        {"text": "r1 "},
        {"text": "-"},
        {"text": "%"},
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%(x)s", "no such atom: %(x)s"),
        ("%(h)s %(host)s", "no such atom: %(host)s"),
        ("%({x}z)s", "no such atom"),
        ("%({a b}i)s", "no such atom"),
        ("%(h)", "is no atom"),
        ("%h", "is no atom"),
        ("100%", "is no atom"),
        ("%(h)r", "is no atom"),
        ("hello", "without an atom"),
        ("%%", "without an atom"),
    ],
)
def test_what_is_no_format_is_named_with_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(WrongFormat) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "%(h)s" in caught.value.allowed and "%({header}i)s" in caught.value.allowed


@pytest.mark.parametrize("text", ["", " ", 5, None, "%(h)s\n"])
def test_what_is_no_line(text: object) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse(text)


def test_the_example_and_the_names() -> None:
    assert parse(EXAMPLE) and for_core("text") == "text" and for_core("json") == "json"


def test_cpu_time_is_measured_only_where_a_line_tells_it() -> None:
    def is_measured(log: str | None, form: str | None, own: str = "text", pool: str = "web") -> bool:
        connection = {"access_log": log, "access_log_format": None if form is None else for_core(form)}
        return logs_cpu({"pool": "web", "connection": connection}, pool, own)

    assert is_measured("-", "json") and is_measured("-", "%(s)s %(cpu_s)s") and is_measured("-", None, "json")
    assert not is_measured(None, "json") and not is_measured("-", "%(s)s %(total_s)s")
    assert not is_measured("-", None) and not is_measured("-", "text", "json")
    assert not is_measured("-", "json", pool="other") and not logs_cpu({}, "web", "json")
    assert logs_cpu({"connection": {"access_log": "-", "access_log_format": "json"}}, "any", "text"), "of all pools"
