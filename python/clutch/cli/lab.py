"""What the commands of the lab have in common: the work that is measured, the load, and reports that are written."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from clutch.cli.call import named_value
from clutch.config.values import DURATION
from clutch.errors import ClutchError
from clutch.lab.load import Load
from clutch.lab.report import Report
from clutch.lab.work import App, Calls, Handler, JobRun, Request, Url, Work

Command = TypeVar("Command", bound=Callable[..., Any])
CALLERS_MAX = 100_000
WEIGHT_MAX = 1_000_000
RATE_CALLERS = 256
"""Units under way at a rate, at most, unless somebody says."""
CALLERS_HELP = "Units under way. [default: twice the slots; 64 over a network]"
BODY_BYTES_MAX = 64 << 20


def work_arguments(command: Command) -> Command:
    """`target`, `arguments`, and the options of which `work_of` makes the work and `load_of` the load."""
    options = (
        click.argument("target", metavar="TARGET"),
        click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]..."),
        click.option("--path", metavar="PATH", help="Serve TARGET as an app and ask for this path."),
        click.option("--method", metavar="METHOD", help="Method of the request. [default: GET, or POST with a body]"),
        click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Header; may be repeated."),
        click.option("--body", metavar="TEXT", help="Body: a text, @FILE, or MODULE:FUNCTION() that makes bodies."),
        click.option("--requests", type=click.Path(path_type=Path), help="TOML file of several weighted requests."),
        click.option("--tcp", is_flag=True, help="Serve TARGET as a handler of TCP connections."),
        click.option("--message", metavar="TEXT", help=r"What is sent over TCP. [default: ping\n]"),
        click.option("--jobs", is_flag=True, help="Run TARGET as a job, enqueued many times."),
        click.option("--store", metavar="URL", help="Store of the jobs. [default: SQLite in a temporary folder]"),
        click.option("--pid", type=int, help="Process of a URL's server, whose CPU time and memory are to be seen."),
        click.option(
            "--callers",
            "--connections",
            type=click.IntRange(1, CALLERS_MAX),
            help=CALLERS_HELP,
        ),
        click.option("--rate", type=float, help="Units a second, whatever became of those before."),
        click.option("--poisson", is_flag=True, help="With --rate: as independent clients come, rather than evenly."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def work_of(target: str, arguments: tuple[str, ...], given: dict[str, Any]) -> Work:
    """Raises UsageError. Takes what it needs out of `given`."""
    names = ("path", "method", "headers", "body", "requests", "tcp", "message", "jobs", "store", "pid")
    path, method, headers, body, requests, tcp, message, jobs, store, pid = (given.pop(name) for name in names)
    values = dict(map(named_value, arguments))
    over_http = path is not None or requests is not None
    if target.startswith(("http://", "https://")):
        refuse_arguments(values, "a URL")
        at = urlsplit(target)
        in_url = (at.path or "/") + (f"?{at.query}" if at.query else "")
        return Url(target, requests_of(path or (None if requests else in_url), method, headers, body, requests), pid)
    module, colon, name = target.partition(":")
    if not module or not colon or not name or module.endswith(".py"):
        near = f"; a module is named as in `import`: {module.removesuffix('.py')}:FUNCTION" if ".py" in module else ""
        raise click.UsageError(f"{target!r} is neither MODULE:FUNCTION, such as tools:resize, nor http://…{near}")
    if over_http + tcp + jobs > 1:
        raise click.UsageError("--path (or --requests), --tcp and --jobs exclude each other")
    if over_http:
        refuse_arguments(values, "an app")
        return App(target, requests_of(path, method, headers, body, requests))
    if method or headers or body:
        raise click.UsageError("--method, --header and --body are of requests: give --path, too")
    if tcp:
        refuse_arguments(values, "a handler")
        return Handler(target, bytes_of(message or r"ping\n"))
    if jobs or store:
        return JobRun(module, name, values, store)
    return Calls(module, name, kwargs=values)


def bytes_of(message: str) -> bytes:
    r"""A text with `\n`, `\r`, `\t`, `\0` and `\x41`. Raises UsageError."""
    try:
        return message.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1")
    except ValueError as error:
        raise click.UsageError(f"--message {message!r}: {error}; other bytes are written as \\x41") from None


def refuse_arguments(values: dict[str, Any], what: str) -> None:
    if values:
        raise click.UsageError(f"{', '.join(values)}: arguments are for functions and jobs, not for {what}")


def requests_of(
    path: str | None, method: str | None, headers: tuple[str, ...], body: str | None, file: Path | None
) -> tuple[Request, ...]:
    """The one of the options, or those of the file. Raises UsageError."""
    if file is not None:
        if path is not None or body is not None or method is not None or headers:
            raise click.UsageError("--requests excludes --path, --method, --header and --body: the file has them")
        return tuple(requests_in(file))
    return (request_of(path or "/", method, [header_of(one) for one in headers], body, 1),)


def requests_in(file: Path) -> list[Request]:
    """`[[request]]` sections with path, method, headers, body and weight. Raises UsageError."""
    allowed = {"path", "method", "headers", "body", "weight"}
    try:
        sections = tomllib.loads(file.read_text())["request"]
        if not isinstance(sections, list):
            raise TypeError("it has [request] where [[request]] is meant")
        for section in sections:
            if not isinstance(weight := section.get("weight", 1), int) or weight not in range(1, WEIGHT_MAX):
                raise ValueError(f"weight is {weight!r}, which is no whole number above 0")
            if wrong := [name for name, value in section.get("headers", {}).items() if not isinstance(value, str)]:
                raise ValueError(f"headers {', '.join(wrong)} are no texts")
            if unknown := set(section) - allowed:
                raise click.UsageError(f"{file}: {', '.join(unknown)}: allowed are {', '.join(sorted(allowed))}")
        return [
            request_of(
                one["path"],
                one.get("method"),
                list(one.get("headers", {}).items()),
                one.get("body"),
                one.get("weight", 1),
            )
            for one in sections
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise click.UsageError(
            f"{file} cannot be read as requests ({type(error).__name__}: {error}): sections such as "
            '[[request]] path = "/a", method = "POST", headers = { accept = "*/*" }, body = "@file.json", weight = 3'
        ) from None


def request_of(path: str, method: str | None, headers: list[tuple[str, str]], body: str | None, weight: int) -> Request:
    content, function = None, None
    if body is not None and body.startswith("@"):
        try:
            content = Path(body[1:]).read_bytes()
        except OSError as error:
            raise click.UsageError(f"--body {body}: {error}") from None
        if len(content) > BODY_BYTES_MAX:
            raise click.UsageError(f"--body {body}: {len(content):,} bytes; allowed are {BODY_BYTES_MAX:,}")
    elif body is not None and body.endswith("()") and ":" in body:
        function = body.removesuffix("()")
    elif body is not None:
        content = body.encode()
    if not path.startswith("/"):
        raise click.UsageError(f"--path is {path!r}; it begins with /")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise click.UsageError(f"--path is {path!r}; it is sent as it is: write such characters as %C3%BC")
    for name, value in headers:
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise click.UsageError(f"--header is {name + ': ' + value!r}; allowed are printable characters of ASCII")
    return Request(path, method or ("GET" if body is None else "POST"), tuple(headers), content, function, weight)


def header_of(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"--header is {text!r}; allowed is such as 'accept: text/html'")
    return name.strip(), value.strip()


def load_of(given: dict[str, Any], work: Work, seed: int) -> Load | None:
    """None: what the work is asked for unless somebody says. Raises UsageError."""
    callers, rate, poisson = (given.pop(name) for name in ("callers", "rate", "poisson"))
    if rate is not None and (not math.isfinite(rate) or rate <= 0):
        raise click.UsageError(f"--rate is {rate}; allowed is a number above 0, of {work.unit} a second")
    if poisson and rate is None:
        raise click.UsageError("--poisson says how the units of a --rate come: give --rate, too")
    if rate is not None:
        return Load(callers or (CALLERS_MAX if work.unit == "calls" else RATE_CALLERS), rate, poisson, seed)
    return None if callers is None else Load(callers)


def seconds_of(text: str, option: str) -> float:
    """Raises UsageError."""
    try:
        return float(DURATION.parse(text))
    except ValueError:
        raise click.UsageError(f"{option} is {text!r}; allowed: {DURATION.allowed}") from None


def tell(line: str) -> None:
    """Progress goes to stderr, results to stdout."""
    click.echo(line, err=True)


def check_places(given: dict[str, Any]) -> None:
    """Whether what is to be written can be, before anything is measured. Raises UsageError."""
    for option in ("save", "html"):
        place: Path | None = given.get(option)
        if place is not None and (place.is_dir() or not os.access(place.parent, os.W_OK)):
            raise click.UsageError(f"--{option} {place}: no file can be written there")


def write(file: Path, text: str, option: str) -> None:
    """Raises ClutchError."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClutchError(f"{option} {file}: {error}") from error


def write_page(report: Report, file: Path | None) -> None:
    """Raises ClutchError."""
    if file is None:
        return
    from clutch.lab.page import page

    write(file, page(report), "--html")
    tell(f"{file}: the report")


def as_json(report: Report) -> str:
    return json.dumps(report.data)
