"""The calls front face to face with its clients: TLS, addresses, files of tokens, web pages, ids of requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clutch._process.systemd import FIRST_HANDED_OVER
from support.clutch_process import (
    COMMAND,
    TARGETS,
    WAIT_SECONDS,
    Answer,
    Server,
    answer,
    clutch,
    soon,
    with_http_option,
)
from support.serve_process import curl, make_certificate, make_client_certificate

POOL = '[pools.api]\ntarget = "http_tools"\nworkers = 1\n'
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def front(*lines: str, bind: str = '"127.0.0.1:0"') -> str:
    return POOL + "\n".join(["[fronts.http]", f"bind = {bind}", *lines, ""])


def tls(folder: Path, *lines: str) -> list[str]:
    return [f'tls.certificate = "{folder}/certificate.pem"', f'tls.key = "{folder}/key.pem"', *lines]


def https(server: Server) -> str:
    return server.err.wait(r"http: https://(\S+)")[1]


def call_of_port(port: str | int, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    url = f"https://localhost:{port}/pools/api/tools/add"
    return curl(*arguments, "-H", "Content-Type: application/json", "-d", '{"a": 1}', url)


# TLS


def test_calls_over_tls(tmp_path: Path, certificate: Path) -> None:
    with Server(tmp_path, front(*tls(certificate))) as server:
        server.wait_ready("api")
        address = https(server)
        port = address.rpartition(":")[2]
        done = call_of_port(port, "--cacert", f"{certificate}/certificate.pem", "-w", " %{http_version}")
        assert done.stdout == b'{"result":2} 1.1'
        # Found by the control socket: the certificate of the config is the one that is trusted.
        done = clutch("call", "api.add", "a=1", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        # By its address: as any client, by an authority and a name.
        url = f"https://localhost:{port}"
        done = clutch("call", "api.add", "a=1", "--url", url, cwd=tmp_path)
        assert (done.returncode, "--cacert FILE" in done.stderr) == (1, True), done.stderr
        authority = ("--cacert", f"{certificate}/certificate.pem")
        done = clutch("call", "api.add", "a=1", "--url", url, *authority, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        done = clutch("call", "api.add", "a=1", "--url", f"https://127.0.0.1:{port}", *authority, cwd=tmp_path)
        assert (done.returncode, "IP address mismatch" in done.stderr) == (1, True), done.stderr
        # Plain HTTP is no handshake.
        with closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as plain:
            plain.request("GET", "/")
            with pytest.raises((OSError, http.client.HTTPException)):
                plain.getresponse()
        done = clutch("call", "api.add", "a=1", "--url", f"http://{address}", cwd=tmp_path)
        expected = f"Error: http://{address} speaks TLS, not plain http: try https://{address}\n"
        assert (done.returncode, done.stderr) == (1, expected)


def test_only_clients_with_a_good_certificate(tmp_path: Path, certificate: Path) -> None:
    authority = make_client_certificate(tmp_path)
    config = front(*tls(certificate, f'tls.client_ca = "{authority}/ca.pem"'))
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        https(server)
        done = clutch("call", "api.add", "a=1", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), done
        shown = ("--cert", "client.pem", "--key", "client.key")
        done = clutch("call", "api.add", "a=1", *shown, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        server.err.wait("fronts.http.tls: a client was refused by its certificate")


def test_a_reload_takes_a_new_certificate(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first, second = (make_certificate(tmp_path_factory.mktemp("certificate")) for _ in range(2))
    names = ("certificate.pem", "key.pem")
    for name in names:
        shutil.copy(first / name, tmp_path / name)
    with Server(tmp_path, front(*tls(tmp_path))) as server:
        server.wait_ready("api")
        port = int(https(server).rpartition(":")[2])
        assert ssl.get_server_certificate(("localhost", port), timeout=60) == (first / names[0]).read_text()
        shutil.copy(second / names[0], tmp_path / names[0])
        done = clutch("reload", cwd=tmp_path)
        assert (done.returncode, "fronts.http.tls" in done.stderr) == (1, True), done
        done = clutch("call", "api.add", "a=1", cwd=tmp_path)
        assert "run `clutch reload`" in done.stderr
        shutil.copy(second / names[1], tmp_path / names[1])
        assert clutch("reload", cwd=tmp_path).returncode == 0
        server.err.wait("fronts.http.tls: reloaded")
        assert ssl.get_server_certificate(("localhost", port), timeout=60) == (second / names[0]).read_text()
        assert clutch("call", "api.add", "a=1", cwd=tmp_path).stdout == "2\n"


def test_files_that_are_no_certificate_are_named(tmp_path: Path, certificate: Path) -> None:
    (tmp_path / "clutch.toml").write_text(front(*tls(certificate, f'tls.client_ca = "{certificate}/key.pem"')))
    done = clutch("run", "clutch.toml", cwd=tmp_path)
    assert (done.returncode, "fronts.http.tls.client_ca" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("lines", "is_allowed"), [([], False), (["token"], True), (["token_file"], True), (["tls"], True)]
)
def test_beyond_loopback_calls_are_guarded(
    tmp_path: Path, certificate: Path, lines: list[str], is_allowed: bool
) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    written = {"token": ['token = "a"'], "token_file": ['token_file = "tokens"'], "tls": tls(certificate)}
    config = front(*(line for name in lines for line in written[name]), bind='"0.0.0.0:0"')
    (tmp_path / "clutch.toml").write_text(config)
    done = clutch("run", "--check", "clutch.toml", cwd=tmp_path)
    assert (done.returncode == 0) is is_allowed, done.stderr
    assert is_allowed or "needs a token or TLS" in done.stderr


def test_over_tls_a_host_may_be_any(tmp_path: Path, certificate: Path) -> None:
    with Server(tmp_path, front(*tls(certificate), bind='"0.0.0.0:0"')) as server:
        server.wait_ready("api")
        port = https(server).rpartition(":")[2]
        arguments = ("--cacert", f"{certificate}/certificate.pem", "-H", "Host: api.example")
        assert call_of_port(port, *arguments).stdout == b'{"result":2}'


# Several addresses


def test_several_addresses_take_calls(tmp_path: Path) -> None:
    binds = '["unix:calls.sock", "127.0.0.1:0", "[::1]:0"]'
    with Server(tmp_path, front(bind=binds)) as server:
        server.wait_ready("api")
        found = [re.search(r"http: (?:http://)?(\S+)", line) for line in server.err.lines if " http: " in line]
        first, second, third = (match[1] for match in found if match)
        assert first == f"unix:{tmp_path}/calls.sock"
        for url in (first, f"http://{second}", f"http://{third}"):
            done = clutch("call", "api.add", "a=1", "--url", url, cwd=tmp_path)
            assert (done.returncode, done.stdout) == (0, "2\n"), (url, done.stderr)
        assert clutch("call", "api.add", "a=1", cwd=tmp_path).stdout == "2\n"
        # Each has names of its own.
        assert call(second, host=third).status == 421
        assert call(third, host=third).status == 200


HANDED_OVER = 'exec 3<&"$1"-; shift; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'


def call(address: str, host: str | None = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {"Content-Type": "application/json"} | ({} if host is None else {"Host": host})
    with closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
        connection.request("POST", "/pools/api/tools/add", '{"a": 1}', named)
        return answer(connection)


def test_a_socket_that_was_handed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        before = ["bash", "-c", HANDED_OVER, "bash", str(listening.fileno())]
        with HandedOver(tmp_path, front(bind=f'"fd:{FIRST_HANDED_OVER}"'), listening, before) as server:
            server.wait_ready("api")
            assert server.http == f"127.0.0.1:{port}"
            assert call(server.http).json == {"result": 2}
            assert call(server.http, host="fd").status == 421


class HandedOver(Server):
    """A server to which a socket is handed over."""

    def __init__(self, folder: Path, config: str, listening: socket.socket, before: list[str]) -> None:
        (folder / "clutch.toml").write_text(config)
        command = [*before, *COMMAND, "run", "clutch.toml"]
        super(Server, self).__init__(folder, command, pass_fds=(listening.fileno(),))


@pytest.mark.parametrize(("lines", "code"), [([], 1), (['token = "a"'], None), (["insecure = true"], None)])
def test_a_socket_that_was_handed_over_is_judged_by_its_address(
    tmp_path: Path, lines: list[str], code: int | None
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        before = ["bash", "-c", HANDED_OVER, "bash", str(listening.fileno())]
        with HandedOver(tmp_path, front(*lines, bind='"fd:3"'), listening, before) as server:
            if code is None:
                assert server.http == f"0.0.0.0:{listening.getsockname()[1]}"
            else:
                assert server.wait() == code
                assert re.search(r"fronts.http.bind fd:3 is 0.0.0.0:\d+, an address beyond loopback", server.err.text)


def test_a_socket_that_no_front_takes_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = ["bash", "-c", HANDED_OVER, "bash", str(listening.fileno())]
        with HandedOver(tmp_path, front(), listening, before) as server:
            server.err.wait("LISTEN_FDS passes fd:3, but no front listens on it")


def test_a_descriptor_that_was_not_handed_over_is_one_error() -> None:
    """Its number is by then that of a pipe of the server's own, which is not to be changed."""
    done = clutch("serve", "web:app", "--fd", "3", cwd=TARGETS)
    assert done.returncode == 1
    assert "descriptor 3 is not a listening socket" in done.stderr
    assert "Traceback" not in done.stderr


# Tokens in files


def test_tokens_change_while_it_serves(tmp_path: Path) -> None:
    """As Kubernetes does it: the path is a link into a folder, which is swapped."""
    for name, text in (("one", "# rotated\nold\nboth\n"), ("two", "both\nnew\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens").write_text(text)
        (tmp_path / name / "tokens").chmod(0o600)
    (tmp_path / "current").symlink_to("one")
    config = POOL + with_http_option('token_file = "current/tokens"').replace(
        "[fronts.admin]", '[fronts.admin]\ntoken_file = "current/tokens"'
    )
    with Server(tmp_path, config) as server:
        server.wait_ready("api")

        def status(token: str) -> int:
            return call(server.http, Authorization=f"Bearer {token}").status

        assert [status(token) for token in ("old", "both", "new", "ol", "# rotated")] == [200, 200, 401, 401, 401]
        assert clutch("call", "api.add", "a=1", cwd=tmp_path).stdout == "2\n"
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(tmp_path / "current")
        soon(lambda: status("new") == 200)
        assert [status(token) for token in ("old", "both")] == [401, 200]
        assert clutch("call", "api.add", "a=1", cwd=tmp_path).stdout == "2\n"

        def admin(token: str) -> int:
            with closing(http.client.HTTPConnection(server.admin, timeout=WAIT_SECONDS)) as connection:
                connection.request("GET", "/healthz", headers={"Authorization": f"Bearer {token}"})
                return answer(connection).status

        soon(lambda: admin("new") == 200)
        assert admin("old") == 401
        assert "every user may read it" not in server.err.text


def test_a_file_of_tokens_that_breaks_keeps_the_old_ones(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("old\n")
    file.chmod(0o644)
    with Server(tmp_path, POOL + with_http_option('token_file = "tokens"')) as server:
        server.wait_ready("api")
        server.err.wait("WARNING .*fronts.http.token_file '.*tokens': every user may read it; chmod 600 it")
        file.write_text("# none\n")
        server.err.wait("WARNING .*fronts.http.token_file '.*tokens': it holds no token.*; the old tokens stay valid")
        assert call(server.http, Authorization="Bearer old").status == 200
        file.unlink()
        os.mkfifo(file)
        server.err.wait("WARNING .*fronts.http.token_file '.*tokens': .*not a regular file; the old tokens stay valid")
        assert call(server.http, Authorization="Bearer old").status == 200
        (tmp_path / "others").write_text("other\n")
        (tmp_path / "others").rename(file)
        soon(lambda: call(server.http, Authorization="Bearer other").status == 200)
        file.write_text("old\n")
        soon(lambda: call(server.http, Authorization="Bearer old").status == 200)
        file.unlink()
        done = clutch("reload", cwd=tmp_path)
        assert (done.returncode, "fronts.http.token_file" in done.stderr) == (1, True), done
        server.err.wait(r"ERROR +fronts.http.token_file '.*tokens': it cannot be read")
        assert call(server.http, Authorization="Bearer old").status == 200
        file.write_text("new\n")
        assert clutch("reload", cwd=tmp_path).returncode == 0
        assert call(server.http, Authorization="Bearer new").status == 200
        assert call(server.http, Authorization="Bearer old").status == 401


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [(None, 2, "cannot be read: No such file"), ("", 1, "it holds no token"), ("a b\n", 1, "line 1: a token is")],
)
def test_a_file_of_tokens_has_to_be_good_at_the_start(tmp_path: Path, text: str | None, code: int, words: str) -> None:
    if text is not None:
        (tmp_path / "tokens").write_text(text)
    (tmp_path / "clutch.toml").write_text(front('token_file = "tokens"'))
    done = clutch("run", "clutch.toml", cwd=tmp_path)
    assert (done.returncode, "fronts.http.token_file" in done.stderr, words in done.stderr) == (code, True, True), done


# Web pages


def test_pages_of_listed_origins_may_call(tmp_path: Path) -> None:
    config = POOL + with_http_option('cors_origins = ["https://App.example:443"]\ntoken = "secret"')
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        origin = "https://app.example"

        def ask(method: str, origin: str, **headers: str) -> Answer:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
                sent = {"Content-Type": "application/json", "Origin": origin, **named}
                connection.request(method, "/pools/api/tools/countdown", '{"n": 2}', sent)
                return answer(connection)

        asked = ask("OPTIONS", origin, Access_Control_Request_Method="POST")
        assert (asked.status, asked.body) == (204, b"")
        assert asked.headers["access-control-allow-origin"] == origin
        assert asked.headers["access-control-allow-methods"] == "GET, POST"
        assert "authorization, content-type" in asked.headers["access-control-allow-headers"]
        assert (asked.headers["access-control-max-age"], asked.headers["vary"]) == ("600", "origin")
        token = {"Authorization": "Bearer secret"}
        stream = ask("POST", origin, **token)
        assert (stream.lines, stream.headers["access-control-allow-origin"]) == ([2, 1], origin)
        problem = ask("POST", origin)
        assert (problem.status, problem.headers["access-control-allow-origin"]) == (401, origin)
        other = ask("POST", "https://other.example", **token)
        assert (other.status, other.headers["access-control-allow-origin"]) == (403, None)
        assert other.json["type"] == "urn:clutch:foreign-origin"
        assert 'fronts.http.cors_origins: ["https://other.example"]' in other.json["detail"]
        assert ask("OPTIONS", "https://other.example", Access_Control_Request_Method="POST").status == 403


# Ids of requests


def test_the_id_of_a_request_is_in_answer_log_and_tool(tmp_path: Path) -> None:
    config = POOL + with_http_option("access_log = \"-\"\naccess_log_format = '%(s)s %({x-request-id}i)s'")
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        for status, sent in ((200, "good-1"), (421, "bad-1")):
            found = call(server.http, host=None if status == 200 else "evil.example", X_Request_Id=sent)
            assert (found.status, found.headers["x-request-id"]) == (status, sent)
            server.out.wait(rf"^{status} {sent}$")
        made = call(server.http, X_Request_Id="two words").headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        server.out.wait(rf"^200 {made}$")


def test_the_id_of_a_request_is_in_lines_of_json(tmp_path: Path) -> None:
    config = POOL + with_http_option('access_log = "calls.log"\naccess_log_format = "json"')
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        assert call(server.http, X_Request_Id="r-1").status == 200
        server.terminate()
        assert server.wait() == 0
    line: dict[str, Any] = json.loads((tmp_path / "calls.log").read_text())
    assert (line["status"], line["request_id"]) == (200, "r-1")
