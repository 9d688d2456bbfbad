"""`clutch call`: one call of a tool, to a running server or to a pool started just for it.

Both go over HTTP: a pool of our own gets a front on a free loopback port and a token, so that arguments, streams and
errors have one path.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import logging
import secrets
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from clutch.cli.flags import pool_flags, pool_options
from clutch.cli.remote import find_here
from clutch.control import client

URL = "http://127.0.0.1:8080"
OWN_POOL = "call"
STREAM = "application/x-ndjson"
PROBLEM_MEMBERS = {"type", "title", "status", "detail", "instance"}
"""Members of every problem document; the others depend on the problem."""
UNKNOWN_NAMES = ("urn:clutch:no-such-pool", "urn:clutch:no-such-tool")
NAMES_MAX = 10
"""That an error lists."""
LIST_THEM = "`clutch tools` lists them"
TLS_ALERT = "\x15\x03"
"""Answer of a TLS server to plain text: the record's type, and the first byte of its version."""
END_OF_CERTIFICATE = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: whom to trust, and what to show to a server that wants to see a certificate."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    token: str | None
    own_certificate: str | None = None
    """File of the very certificate that it shows, as its dispatcher says: no other is trusted."""
    certificates: Certificates = Certificates()


def server_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Flags that say which server is meant; the command gets `server`, which finds it."""

    @functools.wraps(command)
    def with_server(
        url: str | None, token: str | None, cacert: str | None, cert: str | None, key: str | None, **others: Any
    ) -> None:
        command(server=lambda: _meant_server(url, token, Certificates(cacert, cert, key)), **others)

    found: Callable[..., None] = with_server
    for flag in reversed(
        (
            click.option(
                "--url",
                envvar="CLUTCH_URL",
                help=f"URL of the HTTP front, or unix:path. Default: the server that `clutch ps` finds, or {URL}.",
            ),
            click.option("--token", envvar="CLUTCH_TOKEN", help="Token of the front, with --url."),
            click.option(
                "--cacert", metavar="FILE", help="Trust this CA or server certificate (PEM). Default: the system's CAs."
            ),
            click.option("--cert", metavar="FILE", help="Client certificate (PEM), for a front with tls.client_ca."),
            click.option("--key", metavar="FILE", help="Private key of --cert. Default: in the same file."),
        )
    ):
        found = flag(found)
    return found


def _meant_server(url: str | None, token: str | None, certificates: Certificates) -> Endpoint:
    """By the flags; without --url, what takes calls in this folder."""
    server = Endpoint(url, token) if url is not None else _server_here(token)
    return replace(server, certificates=certificates)


@click.command("call", short_help="Call a tool and print its result as JSON.")
@click.argument("tool", metavar="[POOL.]TOOL", required=False)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--json", "body", metavar="OBJECT", help="All arguments as one JSON object; - reads it from stdin.")
@server_flags
@click.option("--timeout", metavar="DURATION", help="Give up after this time, such as 2.5s or 1m.")
@click.option("--target", help="Start a pool with this target for this call only; the flags below configure it.")
@pool_flags
def command(
    tool: str | None,
    arguments: tuple[str, ...],
    body: str | None,
    timeout: str | None,
    target: str | None,
    server: Callable[[], Endpoint],
    **flags: str | None,
) -> None:
    """Call a tool and print its result as JSON; a stream, one line for each value.

    A VALUE is read as JSON where it is JSON, else as text: size=100, name=Ada, tags='["a","b"]'.
    """
    if tool is None:
        raise click.UsageError(f"missing TOOL, for example: clutch call api.add a=1; {LIST_THEM}")
    request = _body(arguments, body)
    options = pool_options(flags)
    if target is None:
        if options:
            raise click.UsageError("flags of a pool need --target")
        pool, dot, name = tool.partition(".")
        asked = server()
        if not dot:
            pool, name = _only_pool(asked, tool), tool
        _call(asked, pool, name, request, timeout)
        return
    with own_server(target, options) as own:
        _call(own, OWN_POOL, tool.rpartition(".")[2], request, timeout)


def _only_pool(server: Endpoint, tool: str) -> str:
    """The one that is meant where none is named."""
    names = [pool["name"] for pool in fetch(server, "/pools")["pools"]]
    if len(names) == 1:
        return str(names[0])
    listed = " or ".join(f"{name}.{tool}" for name in names[:NAMES_MAX])
    raise click.UsageError(f"missing pool, write {listed or f'POOL.{tool}'}; {LIST_THEM}")


def _body(arguments: tuple[str, ...], body: str | None) -> bytes:
    if body is not None:
        if arguments:
            raise click.UsageError("give either NAME=VALUE or --json, not both")
        text = sys.stdin.read() if body == "-" else body
        return text.encode()
    return json.dumps(dict(map(named_value, arguments))).encode()


def named_value(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, whose value is JSON where it can be read as that. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value, parse_constant=refuse_constant)
    except ValueError:
        return name, value


def refuse_constant(constant: str) -> Any:
    """NaN and Infinity are not JSON, though Python reads them."""
    raise ValueError(constant)


def _server_here(token: str | None) -> Endpoint:
    """Returns the server of this folder that takes calls, as its control socket says."""
    taking = _taking_calls()
    if len(taking) > 1:
        listed = ", ".join(one["address"] for one in taking)
        raise click.UsageError(f"several servers here take calls: choose one with --url; there are: {listed}")
    if not taking:
        return Endpoint(URL, token)
    found = taking[0]
    address, certificate = found["address"], found.get("certificate")
    has_tls = certificate is not None and not address.startswith("unix:")
    if certificate is not None and not has_tls:
        raise click.UsageError(f"{address} speaks TLS; give --url of an https address, or add one to its front's bind")
    url = f"https://{address}" if has_tls else address
    return Endpoint(url, token or found["token"], certificate)


def _taking_calls() -> list[dict[str, Any]]:
    """Returns the call fronts of servers in this folder. Other servers may run beside them, of an app, say."""
    found = []
    with contextlib.suppress(client.ControlError):
        for path in find_here():
            with contextlib.suppress(client.ControlError):
                fronts = client.get(path, "/fronts", client.ANSWER_SECONDS_MAX)["fronts"].values()
                found.extend([front for front in fronts if front["kind"] == "http"][:1])
    return found


@contextlib.contextmanager
def own_server(target: str, options: dict[str, Any]) -> Iterator[Endpoint]:
    from clutch import config
    from clutch.config.options import HTTP
    from clutch.config.values import Address
    from clutch.dispatcher import Dispatcher

    spec = config.resolve(OWN_POOL, validate=True, folder=Path.cwd(), target=target, **{"workers": 1, **options})
    token = secrets.token_urlsafe(24)
    http_options = {"kind": "http"} | {option.name: option.default_value(False) for option in HTTP.options}
    http_options |= {"bind": (Address("127.0.0.1", 0),), "token": token, "access_log_format": "text"}
    own = config.Config(Path.cwd() / "clutch.call", (spec,), {"http": config.front_core(http_options)})
    logging.getLogger("clutch").setLevel(logging.CRITICAL)  # the answer tells it all
    with Dispatcher(own) as dispatcher:
        yield Endpoint(f"http://{dispatcher.addresses['http'][0]}", token)


def _call(server: Endpoint, pool: str, tool: str, body: bytes, timeout: str | None) -> None:
    headers = {"Content-Type": "application/json", "Accept": f"application/json, {STREAM};tagged=true"}
    if timeout is not None:
        headers["Clutch-Timeout"] = timeout
    if server.token is not None:
        headers["Authorization"] = f"Bearer {server.token}"
    connection = _connection(server)
    try:
        connection.request("POST", f"/pools/{quote(pool, '')}/tools/{quote(tool, '')}", body, headers)
        _print(connection.getresponse())
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(server, error) from error
    finally:
        connection.close()


def fetch(server: Endpoint, path: str) -> Any:
    """Returns a JSON document of a server."""
    headers = {} if server.token is None else {"Authorization": f"Bearer {server.token}"}
    connection = _connection(server)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(server, error) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise click.ClickException(_problem(answer.status, text))
    return json.loads(text)


def _no_answer(server: Endpoint, error: Exception) -> click.ClickException:
    if isinstance(error, ssl.SSLCertVerificationError):
        return click.ClickException(_not_trusted(server, error))
    if isinstance(error, http.client.BadStatusLine) and str(error).startswith(TLS_ALERT):
        secure = server.url.removeprefix("http://")
        return click.ClickException(f"{server.url} speaks TLS, not plain http: try https://{secure}")
    hint = "start a server with `clutch run`, or give --target"
    return click.ClickException(f"no answer from {server.url}: {error or type(error).__name__}; {hint}")


def _not_trusted(server: Endpoint, error: ssl.SSLCertVerificationError) -> str:
    hint = "trust its certificate, or its CA, with --cacert FILE"
    if server.own_certificate is not None:
        hint = f"{server.own_certificate} has changed since the server read it: run `clutch reload`"
    return f"the certificate of {server.url} is not trusted: {error.verify_message or error}; {hint}"


def _connection(server: Endpoint) -> http.client.HTTPConnection:
    url = server.url
    if url.startswith("unix:"):
        return UnixConnection(url.removeprefix("unix:"))
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"{url!r} is not an http address")
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port)
    context = _tls(server.own_certificate, server.certificates)
    return http.client.HTTPSConnection(parts.hostname, parts.port, context=context)


def _tls(own_certificate: str | None, certificates: Certificates) -> ssl.SSLContext:
    """Raises `UsageError` for a file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=certificates.authority)
        if own_certificate is not None and certificates.authority is None:
            context = _trusting_only(own_certificate)
        # As current Pythons do: a certificate that was given is trusted, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if certificates.certificate is not None:
            context.load_cert_chain(certificates.certificate, certificates.key)
    except OSError as error:
        files = [certificates.authority or own_certificate, certificates.certificate, certificates.key]
        raise click.UsageError(f"cannot use {', '.join(filter(None, files))}: {error}") from error
    return context


def _trusting_only(file: str) -> ssl.SSLContext:
    """Trusts the server's own certificate of the chain alone: who presents it is the server, whatever its name."""
    text = Path(file).read_text()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=text.partition(END_OF_CERTIFICATE)[0] + END_OF_CERTIFICATE)
    return context


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def _print(answer: http.client.HTTPResponse) -> None:
    kind = answer.headers.get_content_type()
    if kind == STREAM and answer.status == 200:
        is_tagged = answer.headers.get_param("tagged") == "true"
        for line in answer:
            (_print_tagged if is_tagged else _print_line)(line)
        return
    text = answer.read()
    if answer.status != 200:
        raise click.ClickException(_problem(answer.status, text))
    click.echo(json.dumps(json.loads(text)["result"], ensure_ascii=False))


def _print_tagged(line: bytes) -> None:
    """Prints one value of a stream whose lines say what they are."""
    told = json.loads(line)
    if "error" in told:
        raise click.ClickException(_problem_text(told["error"]))
    if "value" in told:
        click.echo(json.dumps(told["value"], ensure_ascii=False))


def _print_line(line: bytes) -> None:
    """Prints one value of a stream of an older server; `{"error": problem}` is the last line of one that failed."""
    value = json.loads(line)
    if _is_error(value):
        raise click.ClickException(_problem_text(value["error"]))
    click.echo(json.dumps(value, ensure_ascii=False))


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"error"} and isinstance(value["error"], dict)


def _problem(status: int, text: bytes) -> str:
    """An RFC 9457 document for people; whatever else came, as it is."""
    try:
        problem = json.loads(text)
    except ValueError:
        return f"status {status}: {text.decode(errors='replace').strip()}"
    return _problem_text(problem) if isinstance(problem, dict) else f"status {status}: {problem}"


def _problem_text(problem: dict[str, Any]) -> str:
    """Title and detail, then whatever else the document holds: a list a line each, a traceback as it is."""
    head = ": ".join(str(problem[key]) for key in ("title", "detail") if problem.get(key)) or json.dumps(problem)
    lines = [head]
    for name, value in problem.items():
        if name not in PROBLEM_MEMBERS and value not in (None, "", [], {}):
            lines += _member(name, value)
    if problem.get("type") in UNKNOWN_NAMES:
        lines.append(LIST_THEM)
    return "\n".join(lines)


def _member(name: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"  {json.dumps(item, ensure_ascii=False)}" for item in value]
    if isinstance(value, str) and "\n" in value:
        return [value.rstrip()]
    return [f"  {name}: {value}"]
