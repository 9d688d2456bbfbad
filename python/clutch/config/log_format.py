"""The access log's format as gunicorn writes it, with % atoms, and granian's: parsed once, at the start.

Pure but for the environment, which `%({NAME}e)s` looks into. Does not import the extension.
"""

from __future__ import annotations

import os
import re
from typing import Any

from clutch.config.values import Kind

NAMED = ("text", "json")

# gunicorn's, then granian's, then what only our own lines have. Pieces are those of config.rs: `LogPiece`.
ATOMS: dict[str, dict[str, str]] = {
    "h": {"fact": "client"},
    "l": {"text": "-"},
    "u": {"fact": "user"},
    "t": {"fact": "date"},
    "r": {"fact": "request_line"},
    "m": {"fact": "method"},
    "U": {"fact": "path"},
    "q": {"fact": "query"},
    "H": {"fact": "protocol"},
    "s": {"fact": "status"},
    "B": {"fact": "bytes"},
    "b": {"fact": "response_bytes"},
    "f": {"request_header": "referer"},
    "a": {"request_header": "user-agent"},
    "T": {"fact": "seconds"},
    "M": {"fact": "millis"},
    "D": {"fact": "micros"},
    "L": {"fact": "decimal_seconds"},
    "p": {"fact": "pid"},
    "addr": {"fact": "client"},
    "time": {"fact": "iso_date"},
    "dt_ms": {"fact": "decimal_millis"},
    "status": {"fact": "status"},
    "path": {"fact": "path"},
    "query_string": {"fact": "query"},
    "method": {"fact": "method"},
    "scheme": {"fact": "scheme"},
    "protocol": {"fact": "protocol"},
    "proxy_s": {"fact": "proxy_seconds"},
    "queue_s": {"fact": "queue_seconds"},
    "head_s": {"fact": "head_seconds"},
    "total_s": {"fact": "decimal_seconds"},
    "end": {"fact": "end"},
    "close_code": {"fact": "close_code"},
    "cpu_s": {"fact": "cpu_seconds"},
}
OF_ENVIRON = {
    "REMOTE_ADDR": "h",
    "REQUEST_METHOD": "m",
    "PATH_INFO": "U",
    "RAW_URI": "U",
    "QUERY_STRING": "q",
    "SERVER_PROTOCOL": "H",
    "WSGI.URL_SCHEME": "scheme",
}
"""Variables of a WSGI request that are atoms, too. Other names are headers (`HTTP_…`) or the environment's."""

ALLOWED = f"%({')s, %('.join(ATOMS)})s, %({{header}}i)s, %({{header}}o)s, %({{VARIABLE}}e)s, %%"
EXAMPLE = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s %({x-request-id}i)s'

PERCENT = re.compile(r"%(?:(%)|\(((?:\{[^{}]*\}[a-zA-Z])|[^(){}]*)\)(s|d|\.\d+f)?)?")
IN_BRACES = re.compile(r"\{([!#$%&'*+.^_`|~0-9A-Za-z-]+)\}([ioe])")


class WrongFormat(ValueError):
    """Error in a format, for the report. `allowed`: the allowed values."""

    def __init__(self, what: str, allowed: str = ALLOWED) -> None:
        super().__init__(what)
        self.allowed = allowed


def parse(value: Any) -> str:
    """Parse a complete format. Raises `WrongFormat`, or a plain `ValueError` if it is not text."""
    if not isinstance(value, str) or not value.strip() or re.search(r"[\0\r\n]", value):
        raise ValueError
    if value not in NAMED and not any("text" not in piece for piece in pieces(value)):
        raise WrongFormat("a format without an atom: each line would be the same", f"{', '.join(NAMED)}, {ALLOWED}")
    return value


def for_core(value: str) -> Any:
    """Returns the format as config.rs has it."""
    return value if value in NAMED else {"line": pieces(value)}


def tells_cpu(core: Any) -> bool:
    """Whether a line of this format, as config.rs has it, tells CPU time: workers measure it then."""
    return core == "json" or (isinstance(core, dict) and ATOMS["cpu_s"] in core["line"])


def pieces(text: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    at = 0
    for percent in PERCENT.finditer(text):
        found += _text(text[at : percent.start()])
        found.append(_piece(percent))
        at = percent.end()
    return [*found, *_text(text[at:])]


def _text(text: str) -> list[dict[str, str]]:
    return [{"text": text}] if text else []


def _piece(percent: re.Match[str]) -> dict[str, str]:
    if percent[1]:
        return {"text": "%"}
    if percent[2] is None or percent[3] is None:
        raise WrongFormat(f"{percent[0]!r} is no atom: it has a name and ends in s, such as %(h)s")
    name = percent[2]
    if name in ATOMS:
        return ATOMS[name]
    braces = IN_BRACES.fullmatch(name)
    if braces is None:
        raise WrongFormat(f"no such atom: %({name})s")
    return _of_braces(braces[1], braces[2])


def _of_braces(name: str, kind: str) -> dict[str, str]:
    if kind == "i":
        return {"request_header": name.lower()}
    if kind == "o":
        return {"response_header": name.lower()}
    upper = name.upper()
    if upper in OF_ENVIRON:
        return ATOMS[OF_ENVIRON[upper]]
    if upper.startswith("HTTP_") or upper in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        return {"request_header": upper.removeprefix("HTTP_").replace("_", "-").lower()}
    return {"text": re.sub(r"[^ -~]", " ", os.environ.get(name, "-"))}


LOG_FORMAT = Kind(
    "format of a log",
    f"text, json, or a line with atoms, such as {EXAMPLE}",
    parse,
    core=for_core,
    names=NAMED,
    verbatim=True,
)
