"""`python -m benches.hostile [attacks] [matrix] [--only NAME …]`: what hostile clients get, and what they cost."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from benches.hostile import matrix, servers
from benches.hostile.catalogue import ATTACKS
from benches.hostile.matrix import http1_cases, http2_cases
from benches.hostile.run import Found, run
from clutch.lab.machine import line, packages
from clutch.lab.report import Sheet, text_of

_LOOKS = ["before", "worst", "after"]
_HEADINGS = ["attack", "client ok/failed", *(f"{who} {look}" for who in ("dispatcher", "workers") for look in _LOOKS)]
_KEY = "RSS/own MB, then descriptors; own: anonymous and shared memory. Workers: all of them together, and the zygote."


def main() -> int:
    """0 when all held."""
    wanted = _arguments()
    print(line())
    well = True
    if "attacks" in wanted.parts:
        well &= _attacks([name for name in ATTACKS if _is_picked(name, wanted.only)])
    if "matrix" in wanted.parts and not wanted.only:
        _matrix()
    return 0 if well else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.hostile", description="Hostile clients of served apps.")
    parser.add_argument("parts", nargs="*", default=["attacks", "matrix"], help="attacks, matrix; both by default")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="attacks with this in their name")
    wanted = parser.parse_args()
    if unknown := set(wanted.parts) - {"attacks", "matrix"}:
        parser.error(f"no such part: {', '.join(unknown)}; there are: attacks, matrix")
    if not any(_is_picked(name, wanted.only) for name in ATTACKS):
        parser.error(f"no attack is named so; there are: {', '.join(ATTACKS)}")
    return wanted


def _is_picked(name: str, only: list[str]) -> bool:
    return not only or any(word.lower() in name.lower() for word in only)


def _attacks(names: list[str]) -> bool:
    found = []
    for name in names:
        began = time.monotonic()
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        found.append(run(ATTACKS[name]))
        verdict = "; ".join(found[-1].complaints) or "held"
        print(f"{verdict}, {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    lines = [_line(one) for one in found]
    print("", text_of(Sheet("Attacks, 2 workers of async", _HEADINGS, lines)), _KEY, "", sep="\n")
    print(*_answers(found), sep="\n")
    return not any(one.complaints for one in found)


def _line(found: Found) -> list[str]:
    looks = (found.before, found.worst, found.after)
    weights = [*(look.dispatcher for look in looks), *(look.workers for look in looks)]
    return [found.name, str(found.client), *map(str, weights)]


def _answers(found: list[Found]) -> Iterator[str]:
    for one in found:
        yield f"{one.name}: {one.answer}"
        yield from (f"    NOT HELD: {complaint}" for complaint in one.complaints)


def _matrix() -> None:
    """The same cases to all servers, side by side."""
    shown = []
    cases = [len(http1_cases.all_cases()), len(http2_cases.all_cases())]
    failed: dict[str, dict[str, str]] = {}
    for server in [servers.CLUTCH_ASGI, servers.CLUTCH_WSGI, *servers.PEERS]:
        over_http1 = matrix.complaints_over_http1(server)
        over_http2 = matrix.complaints_over_http2(server) if server.name in servers.SPEAK_HTTP2 else None
        failed[server.name] = over_http1 | (over_http2 or {})
        second = "–" if over_http2 is None else f"{cases[1] - len(over_http2)} of {cases[1]}"
        shown.append([server.name, f"{cases[0] - len(over_http1)} of {cases[0]}", second])
        print(f"{server.name}: {shown[-1][1]}", file=sys.stderr, flush=True)
    table = Sheet("Requests that may be read in two ways", ["server", "HTTP/1", "HTTP/2"], shown)
    print("", text_of(table), "", sep="\n")
    versions = packages()
    print(
        "versions:", ", ".join(f"{name} {versions.get(name, 'missing')}" for name in ("granian", "gunicorn", "uvicorn"))
    )
    for name in (servers.CLUTCH_ASGI.name, servers.CLUTCH_WSGI.name):
        print(*(f"{name}: {case}: {complaint}" for case, complaint in failed[name].items()), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
