"""gunicorn's request corpus, each file sent whole; what an app sees decides."""

from __future__ import annotations

from pathlib import Path

import corpus
import pytest
from benches.hostile import matrix, servers
from benches.hostile.seen import Outcome, Request
from benches.hostile.server import Server
from suites import path_of

SERVERS = [servers.CLUTCH_ASGI, servers.CLUTCH_WSGI]

_LIMIT = "beyond a limit of gunicorn's, or one that the file sets; within ours (64 KB, 100 lines)"
_DROPPED = "trailers are dropped: no app reads this one for a header"
_UNDERSCORE = "a name with an underscore is left out, and reaches no app"
ACCEPTED = {
    **dict.fromkeys(("006", "007", "008", "010", "011", "012", "017", "limit_header_default_01"), _LIMIT),
    **{f"rfc9110_trailer_forbidden_{name}_01": _DROPPED for name in ("cl", "host", "te")},
    **dict.fromkeys(("040", "chunked_07"), _UNDERSCORE),
    "003c": "-bl is a token, and so a method",
    "019": "X-Forwarded-Ssl is not read, so it contradicts nothing",
    "041": "ASGI apps get both lines of Content-Type",
    "chunked_09": "a space after a chunk's size is skipped by all that take it",
    "rfc9112_leading_crlf_02": "empty lines before a request are skipped, as RFC 9112 (2.2) says of one",
    "rfc9112_smuggle_cl_te_chunked_01": "chunked counts, and the connection is closed (RFC 9112, 6.3)",
    "rfc9112_target_non_ascii_02": "raw UTF-8 in a path, which clients send; there is one reading of it",
}
"""Invalid to gunicorn and taken here, and why."""

_CODING = "a transfer coding but chunked, which apps would get as it is: 400 or 501"
_FOLDED = "folded lines are refused; gunicorn takes them where it is told to"
_TUNNEL = "this is no proxy: CONNECT is 405"
_PROXY = "the PROXY protocol is understood where it is asked for"
REFUSED = {
    **dict.fromkeys(("025", "025_line", "029", "030"), _CODING),
    **{f"rfc9112_smuggle_{name}_01": _CODING for name in ("gzip_chunked", "te_identity_chunked")},
    **{f"rfc9112_target_authority_{name}_01": _TUNNEL for name in ("connect", "ipv6")},
    **dict.fromkeys(("compat_obs_fold", "compat_obs_fold_huge"), _FOLDED),
    **dict.fromkeys(("pp_01", "pp_02", "pp_04", "pp_05"), _PROXY),
    "005": "a target with a fragment, which is no part of one (RFC 9112, 3.2)",
    "028": "a space before the colon; gunicorn takes it where it is told to",
    "031compat": "methods are left as they are; gunicorn makes capitals of them where it is told to",
    "099": "the file is shorter than its Content-Length",
    "rfc9112_target_absolute_userinfo_01": "a target with userinfo (RFC 9110, 4.2.4)",
}
"""Valid to gunicorn and refused or seen otherwise here, and why."""


def name_of(server: Server) -> str:
    return server.name


def outcomes(server: Server, folder: str) -> dict[Path, Outcome]:
    files = sorted(path_of("corpus", folder).glob("*.http"))
    return dict(zip(files, matrix.outcomes(server, [corpus.said(file) for file in files]), strict=True))


@pytest.mark.parametrize("server", SERVERS, ids=name_of)
def test_failure_42_invalid_requests_of_gunicorn_reach_no_app(server: Server) -> None:
    found = outcomes(server, "invalid")
    reached = {file.stem: str(outcome) for file, outcome in found.items() if outcome.whole}
    assert {name: seen for name, seen in reached.items() if name not in ACCEPTED} == {}
    assert ACCEPTED.keys() - reached.keys() == set(), "refused by now: take them off the list"


@pytest.mark.parametrize("server", SERVERS, ids=name_of)
def test_valid_requests_of_gunicorn_are_seen_as_they_are(server: Server) -> None:
    found = {file: difference(file, outcome) for file, outcome in outcomes(server, "valid").items()}
    differ = {file.stem: text for file, text in found.items() if text is not None}
    assert {name: text for name, text in differ.items() if name not in REFUSED} == {}
    assert REFUSED.keys() - differ.keys() == set(), "as gunicorn has it by now: take them off the list"


def difference(file: Path, outcome: Outcome) -> str | None:
    wanted = corpus.expected(file)
    if len(wanted) != len(outcome.whole):
        return f"{len(wanted)} requests: {outcome}"
    pairs = zip(wanted, outcome.whole, strict=True)
    return next((f"{one}, not {seen}" for one, seen in pairs if not is_as_expected(one, seen)), None)


def is_as_expected(one: corpus.Expected, seen: Request) -> bool:
    """Names with an underscore are left out, and values of one name are counted together."""
    if (seen.method, seen.body) != (one.method, one.body):
        return False
    names = {name for name, _ in one.headers if "_" not in name} - {"host"}
    wanted = {name: [value for found, value in one.headers if found == name] for name in names}
    return all(",".join(seen.values(name)) == ",".join(values) for name, values in wanted.items())
