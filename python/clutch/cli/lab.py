"""What the commands of the lab have in common: the work that is measured, the load, and reports that are written."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from clutch.cli import habits, targets
from clutch.cli.call import named_value
from clutch.cli.kinds import APP, CALLS, JOBS, TCP, URL, Kind, kind_of, refuse_idle, refuse_others
from clutch.config.values import DURATION
from clutch.errors import ClutchError
from clutch.lab.comparing import ROUNDS_MIN
from clutch.lab.load import Load
from clutch.lab.report import WARNING, Report
from clutch.lab.work import App, Calls, Handler, JobRun, Request, Url, Work

Command = TypeVar("Command", bound=Callable[..., Any])
CALLERS_MAX = 100_000
WEIGHT_MAX = 1_000_000
RATE_CALLERS = 256
"""Units under way at a rate, at most, unless somebody says."""
CALLERS_HELP = "Units under way. [default: twice the slots; 64 over a network]"
RATE_HELP = "Units a second, whatever became of those before."
POISSON_HELP = "With --rate: as independent clients come, rather than evenly."
METHOD_HELP = "Method of the request. [default: GET, or POST with a body]"
ROUNDS_HELP = f"Measurements of each. [default: {ROUNDS_MIN} or more, in about 6 s]"
SECONDS_HELP = "Time of each measurement. [default: 100ms for calls, 200ms over a network, 1s at a rate or of jobs]"
RATE_SECONDS = 1.0
STORE_HELP = "With --jobs: their store. [default: SQLite in a temporary folder]"
BODY_BYTES_MAX = 64 << 20


SECTIONS = {
    "Work": ("path", "method", "headers", "body", "requests", "tcp", "message", "jobs", "store", "pid"),
    "Load": ("callers", "rate", "poisson"),
    "Settings": ("profile", "workers", "threads", "tasks", "threads_ok", "peers"),
    "Measuring": ("rounds", "seconds", "budget", "slo", "memory", "seed", "recycling", "scale"),
    "Results": ("save", "against", "write", "pool", "html", "as_json"),
}
"""Of `--help`: options by the names of their parameters. Others come last."""


class Interrupted(click.ClickException):
    """Ctrl-C came before there was anything to show."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(self.message, file, err=True)


class LabCommand(habits.CommandWithHabits):
    """A command of the lab: it knows options of other programs, has its help in sections, and says that it was
    interrupted where it has nothing to show."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted before there was anything to show") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        left = {one.name: record for one in options if (record := one.get_help_record(ctx)) is not None}
        sections = {title: [left.pop(name) for name in names if name in left] for title, names in SECTIONS.items()}
        for title, records in {**sections, "Others": list(left.values())}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def work_arguments(*without: str) -> Callable[[Command], Command]:
    """`target`, `arguments`, and the options of which `work_of` makes the work and `load_of` the load, but for those
    that mean nothing to the command."""
    options = {
        "target": click.argument("target", metavar="TARGET"),
        "arguments": click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]..."),
        "path": click.option("--path", metavar="PATH", help="Serve TARGET as an app and ask for this path."),
        "method": click.option("-m", "--method", metavar="METHOD", help=METHOD_HELP),
        "headers": click.option(
            "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Header; may be repeated."
        ),
        "body": click.option(
            "--body", metavar="TEXT", help="Body: a text, @FILE, or MODULE:FUNCTION() that makes bodies."
        ),
        "requests": click.option(
            "--requests", type=click.Path(path_type=Path), help="TOML file of several weighted requests."
        ),
        "tcp": click.option("--tcp", is_flag=True, help="Serve TARGET as a handler of TCP connections."),
        "message": click.option("--message", metavar="TEXT", help=r"With --tcp: what is sent. [default: ping\n]"),
        "jobs": click.option("--jobs", is_flag=True, help="Run TARGET as a job, enqueued many times."),
        "store": click.option("--store", metavar="URL", help=STORE_HELP),
        "pid": click.option(
            "--pid", type=int, help="Process of a URL's server, whose CPU time and memory are to be seen."
        ),
        "callers": click.option(
            "--callers", "--connections", type=click.IntRange(1, CALLERS_MAX), metavar="N", help=CALLERS_HELP
        ),
        "rate": click.option("--rate", type=float, metavar="N", help=RATE_HELP),
        "poisson": click.option("--poisson", is_flag=True, help=POISSON_HELP),
    }

    def add(command: Command) -> Command:
        for name, option in reversed(options.items()):
            command = command if name in without else option(command)
        return command

    return add


def work_of(
    context: click.Context, measured: Set[Kind], target: str, arguments: tuple[str, ...], given: dict[str, Any]
) -> Work:
    """Returns the work that the options of `work_arguments` name. Raises UsageError, also for options that have no
    effect on it."""
    is_http = given["path"] is not None or given["requests"] is not None
    kind = kind_of(targets.is_url(target), is_http, bool(given.get("tcp")), given["jobs"])
    if kind is not URL:
        targets.module_and_name(target)
    refuse_others(target, kind, measured, context.info_name or "")
    refuse_idle(context, kind)
    values = dict(map(named_value, arguments))
    if values and kind not in (CALLS, JOBS):
        raise click.UsageError(f"{', '.join(values)}: arguments are for functions and jobs, not for {kind.value}")
    if kind is URL:
        return url_of(target, given)
    if warning := targets.check(target, kind):
        tell(f"{WARNING}{warning}")
    if kind is APP:
        return App(target, requests_of(given, given["path"]))
    if kind is TCP:
        return Handler(target, bytes_of(given["message"]))
    module, name = targets.module_and_name(target)
    return JobRun(module, name, values, given.get("store")) if kind is JOBS else Calls(module, name, kwargs=values)


def other_of(work: Work, target: str) -> Work:
    """The same work with another target. Raises UsageError."""
    module, name = targets.module_and_name(target)
    if isinstance(work, App | Handler):
        return replace(work, target=target)
    assert isinstance(work, Calls | JobRun)
    return replace(work, module=module, name=name)


def url_of(target: str, given: dict[str, Any]) -> Url:
    """The paths are those of the URL or of the options, never of both. Raises UsageError."""
    try:
        at = urlsplit(target)
        is_place = bool(at.hostname) and at.port != 0
    except ValueError:
        at, is_place = urlsplit(""), False
    if not is_place:
        raise click.UsageError(f"{target!r} names no server; allowed is http://HOST:PORT/PATH")
    in_url = (at.path or "/") + (f"?{at.query}" if at.query else "")
    has_own = given["path"] is not None or given["requests"] is not None
    if has_own and in_url != "/":
        option = "--requests" if given["path"] is None else "--path"
        raise click.UsageError(f"the URL has the path {in_url}, and {option} has another: leave one of them out")
    return Url(target, requests_of(given, given["path"] if has_own else in_url), given["pid"])


def bytes_of(message: str | None) -> bytes:
    r"""A text with `\n`, `\r`, `\t`, `\0` and `\x41`; None: the default. Raises UsageError."""
    if message is None:
        return b"ping\n"
    if not message:
        raise click.UsageError("--message is empty: nothing would be sent, and nothing answered")
    try:
        return message.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1")
    except ValueError as error:
        raise click.UsageError(f"--message {message!r}: {error}; other bytes are written as \\x41") from None


def requests_of(given: dict[str, Any], path: str | None) -> tuple[Request, ...]:
    """The one of the options, or those of the file. Raises UsageError."""
    method, headers, body, file = (given[name] for name in ("method", "headers", "body", "requests"))
    if file is not None:
        if path is not None or body is not None or method is not None or headers:
            raise click.UsageError("--requests excludes --path, --method, --header and --body: the file has them")
        return tuple(requests_in(file))
    return (request_of(path or "/", method, [header_of(one) for one in headers], body, 1),)


def requests_in(file: Path) -> list[Request]:
    """`[[request]]` sections with path, method, headers, body and weight. Raises UsageError."""
    allowed = {"path", "method", "headers", "body", "weight"}
    if str(file).isdecimal() and not file.exists():
        raise click.UsageError(f"--requests {file}: it is a file of requests; measurements have a time, not a count")
    try:
        sections = tomllib.loads(file.read_text()).get("request")
        if not isinstance(sections, list):
            raise TypeError("it has no [[request]]" if sections is None else "it has [request] for [[request]]")
        for section in sections:
            if not isinstance(weight := section.get("weight", 1), int) or weight not in range(1, WEIGHT_MAX):
                raise ValueError(f"weight is {weight!r}, which is no whole number above 0")
            if wrong := [name for name, value in section.get("headers", {}).items() if not isinstance(value, str)]:
                raise ValueError(f"headers {', '.join(wrong)} are no texts")
            if unknown := set(section) - allowed:
                raise click.UsageError(f"{file}: {', '.join(unknown)}: allowed are {', '.join(sorted(allowed))}")
            if "path" not in section:
                raise ValueError("a [[request]] has no path")
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
            f"{file} cannot be read as requests ({getattr(error, 'strerror', error)}): sections such as "
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
        raise click.UsageError(f"--path is {path!r}; it begins with /: write /{path}")
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
    if name in ("http", "https") and value.startswith("//"):
        raise click.UsageError(f"--header is {text!r}, a URL: that is TARGET, as in `clutch bench {text}`")
    return name.strip(), value.strip()


def load_of(given: dict[str, Any], work: Work, seed: int) -> Load | None:
    """None: what the work is asked for unless somebody says. Raises UsageError."""
    callers, rate, poisson = (given[name] for name in ("callers", "rate", "poisson"))
    if rate is not None and (not math.isfinite(rate) or rate <= 0):
        raise click.UsageError(f"--rate is {rate}; allowed is a number above 0, of {work.unit} a second")
    if poisson and rate is None:
        raise click.UsageError("--poisson says how the units of a --rate come: give --rate, too")
    if rate is not None:
        return Load(callers or (CALLERS_MAX if work.unit == "calls" else RATE_CALLERS), rate, poisson, seed)
    return None if callers is None else Load(callers)


def window_of(text: str | None, work: Work, load: Load | None) -> float:
    """Seconds of one measurement: those that are given, or what such work has by default. Raises UsageError."""
    if text is not None:
        return seconds_of(text, "--seconds")
    return work.seconds if load is None or load.rate is None else RATE_SECONDS


def seconds_of(text: str, option: str) -> float:
    """Raises UsageError."""
    try:
        return float(DURATION.parse(text))
    except ValueError:
        is_bare = text.replace(".", "", 1).isdecimal()
        near = f", without a unit: write {text}s" if is_bare else ""
        raise click.UsageError(f"{option} is {text!r}{near}; allowed are 250ms, 30s, 5m and the like") from None


def warn_of_few(rounds: int | None, then: str) -> None:
    if rounds is not None and rounds < ROUNDS_MIN:
        tell(f"{WARNING}fewer than {ROUNDS_MIN} rounds cannot tell anything: {then}")


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
