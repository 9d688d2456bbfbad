"""Who a client is, and how and when its request came: TLS, the PROXY protocol, and what proxies write into heads."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support.clutch_process import clutch, soon
from support.hostile_client import HOST, LAST, Served, body, rest, serve, status
from support.serve_process import ANY_PORT, Serving, make_certificate, make_client_certificate

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BINARY = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([1, 2, 3, 4, 5, 6, 7, 8]) + (9).to_bytes(2, "big") + b"\x00\x0a"
REQUEST = f"GET / HTTP/1.1\r\n{LAST}\r\n".encode()


def ask(served: Served, *lines: str) -> dict[str, Any]:
    more = "".join(line + "\r\n" for line in lines)
    return body(served.say(f"GET / HTTP/1.1\r\n{LAST}{more}\r\n"))


def shown(address: str) -> str:
    """The certificate that a new connection gets."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=60)


# Heads


def test_the_nearest_proxy_is_believed_and_no_other(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving_apps:app") as served:
        found = ask(served, "X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Forwarded-Proto: https")
        assert (found["client"], found["scheme"]) == (["1.2.3.4", 0], "https")
        (line,) = served.logged()
        assert line["client"] == "1.2.3.4"


def test_who_is_not_named_is_not_believed(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving_apps:app", forwarded_allow="10.0.0.0/8") as served:
        found = ask(served, "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Request-Start: t=1")
        assert (found["client"][0], found["scheme"]) == ("127.0.0.1", "http")


WRITTEN = "X-Forwarded-For: 6.6.6.6, 127.0.0.1"
"""By the client; the proxy adds to it who the client is."""
ADDED = f"{WRITTEN}, 1.2.3.4"


@pytest.mark.parametrize(
    ("names", "header", "client"),
    [
        (None, ADDED, "1.2.3.4"),
        ("*", ADDED, "1.2.3.4"),
        ("0.0.0.0/0", ADDED, "1.2.3.4"),
        ("127.0.0.0/8", ADDED, "1.2.3.4"),
        ("127.0.0.0/8", f"{ADDED}, 127.0.0.2", "1.2.3.4"),
        ("10.0.0.0/8", WRITTEN, "127.0.0.1"),
    ],
)
def test_failure_70_an_address_that_a_client_wrote_itself(
    tmp_path: Path, names: str | None, header: str, client: str
) -> None:
    with serve(tmp_path, "misbehaving_apps:app", **({"forwarded_allow": names} if names else {})) as served:
        assert ask(served, header)["client"][0] == client


def test_failure_70_an_address_that_a_client_wrote_itself_over_a_unix_socket(tmp_path: Path) -> None:
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", "unix:web.sock") as serving:
        serving.wait_ready("web")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "web.sock"))
            connection.sendall(f"GET / HTTP/1.1\r\n{LAST}{ADDED}\r\n\r\n".encode())
            assert body(rest(connection))["client"][0] == "1.2.3.4"


@pytest.mark.parametrize("names", ["127.0.0.1", "*"])
def test_failure_70_an_address_that_a_client_wrote_itself_behind_the_proxy_protocol(tmp_path: Path, names: str) -> None:
    """Whoever comes is a client of the proxy, which writes no headers."""
    options = {"proxy_protocol": "true", "access_log": "access", "forwarded_allow": names}
    with serve(tmp_path, "misbehaving_apps:app", **options) as served:
        request = f"GET / HTTP/1.1\r\n{LAST}X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\r\n"
        found = body(served.say("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n" + request))
        assert (found["client"], found["scheme"]) == (["1.2.3.4", 9], "https" if names == "*" else "http")


def test_time_before_the_server_counts_for_half_at_most(tmp_path: Path) -> None:
    """Two seconds are allowed. A clock that is wrong is told of, and refuses nobody."""
    with serve(tmp_path, "misbehaving_apps:app") as served:
        for ago in (0.5, 10):
            start = f"X-Request-Start: t={int((time.time() - ago) * 1000)}\r\n"
            assert status(served.say(f"GET / HTTP/1.1\r\n{LAST}{start}\r\n")) == 200
            (line,) = served.logged()
            assert ago <= line["proxy_s"] < ago + 5
        served.serving.err.wait("WARNING X-Request-Start: a request came 1[0-9.]+ s after")


# The PROXY protocol


@pytest.mark.parametrize("head", [b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n", BINARY])
def test_a_proxy_speaks_for_its_client(tmp_path: Path, head: bytes) -> None:
    with serve(tmp_path, "misbehaving_apps:app", proxy_protocol="true", access_log="access") as served:
        assert body(served.say(head + REQUEST))["client"] == ["1.2.3.4", 9]


PROXY_HEADS = {
    "none": REQUEST,
    "an endless line": b"PROXY " + b"x" * 1000,
    "a half line": b"PROXY TCP4 1.2",
    "nothing": b"",
    "a huge rest": SIGNATURE + b"\x21\x11\xff\xff",
    "too short": SIGNATURE + b"\x21\x11\x00\x02ab",
}


def test_failure_42_heads_of_no_proxy(tmp_path: Path) -> None:
    log = tmp_path / "access"
    with serve(tmp_path, "misbehaving_apps:app", proxy_protocol="true", access_log="access") as served:
        for head in PROXY_HEADS.values():
            assert served.say(head) == b""
        assert status(served.say(b"PROXY UNKNOWN\r\n" + REQUEST)) == 200
        served.serving.err.wait("WARNING fronts.serve.proxy_protocol: a connection was closed")
        soon(lambda: '"path":"/"' in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    # Of those that sent nothing there is no line, of those that were too slow that they have gone.
    ends = {"none": "refused", "an endless line": "refused", "a half line": "client-gone", "a huge rest": "refused"}
    ends |= {"too short": "refused"}
    assert [(line["method"], line["status"], line["end"]) for line in lines[:-1]] == [
        (None, None, ends[name]) for name in PROXY_HEADS if name in ends
    ]


# TLS


def test_tls_with_both_versions_of_http(tmp_path: Path, certificate: Path) -> None:
    tls = {"tls.certificate": str(certificate / "certificate.pem"), "tls.key": str(certificate / "key.pem")}
    flags = [flag for name, value in tls.items() for flag in ("--set", f"fronts.serve.{name}={value}")]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        host, _, port = serving.err.wait(r"serve: https://(\S+)")[1].rpartition(":")
        context = ssl.create_default_context(cafile=tls["tls.certificate"])
        curl = ["curl", "-sS", "--cacert", tls["tls.certificate"], "-o", "-", "-w", " %{http_version}"]
        address = f"https://localhost:{port}/"
        done = subprocess.run(
            [*curl, "--connect-to", f"localhost:{port}:{host}:{port}", address],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ('"scheme": "https"' in done.stdout, done.stdout.split()[-1]) == (True, "2"), done
        for offered, chosen in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), ([], None)):
            if offered:
                context.set_alpn_protocols(offered)
            with Served.connect(host, port) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
                assert secure.selected_alpn_protocol() == chosen or not offered
                if chosen == "http/1.1":
                    secure.sendall(REQUEST)
                    assert body(rest(secure))["scheme"] == "https"
        with Served.connect(host, port) as plain:
            plain.sendall(f"GET / HTTP/1.1\r\n{HOST}\r\n".encode())
            assert not rest(plain).startswith(b"HTTP/")


def test_a_reload_takes_a_new_certificate(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, certificate: Path
) -> None:
    """Connections that are there go on; files that cannot be used change nothing."""
    other = make_certificate(tmp_path_factory.mktemp("other"))
    names = ("certificate.pem", "key.pem")
    texts = [(folder / "certificate.pem").read_text() for folder in (certificate, other)]
    for name in names:
        shutil.copy(certificate / name, tmp_path / name)
    files = ["--certfile", "certificate.pem", "--keyfile", "key.pem"]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *files) as serving:
        serving.wait_ready("web")
        address = serving.err.wait(r"serve: https://(\S+)")[1]
        assert shown(address) == texts[0]
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
        with Served.connect(host, port) as plain, context.wrap_socket(plain, server_hostname="localhost") as kept:
            shutil.copy(other / "certificate.pem", tmp_path)
            done = clutch("reload", "--pid", str(serving.process.pid), cwd=tmp_path)
            assert (done.returncode, "tls.key" in done.stderr) == (1, True), done
            serving.err.wait(r"ERROR +fronts.serve.tls.key '.*key.pem' with tls.certificate")
            serving.err.wait("fronts.serve.tls: the previous files stay in use")
            assert shown(address) == texts[0]
            shutil.copy(other / "key.pem", tmp_path)
            serving.send(signal.SIGHUP)
            serving.err.wait("fronts.serve.tls: reloaded")
            assert shown(address) == texts[1]
            kept.sendall(REQUEST)
            assert body(rest(kept))["scheme"] == "https"


def test_failure_42_handshakes_that_fail(tmp_path: Path, certificate: Path) -> None:
    """A line for each, but for one that said nothing."""
    tls = {"certificate": str(certificate / "certificate.pem"), "key": str(certificate / "key.pem")}
    options = {f"tls.{name}": path for name, path in tls.items()} | {"head_timeout": "1s", "access_log": "-"}
    flags = [flag for name, value in options.items() for flag in ("--set", f"fronts.serve.{name}={value}")]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        host, _, port = serving.err.wait(r"serve: https://(\S+)")[1].rpartition(":")
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        for nr, (sent, goes, end) in enumerate(
            [
                (b"", True, None),
                (b"", False, None),
                (REQUEST, False, "refused"),
                (hello, False, "client-gone"),
                (hello, True, "client-gone"),
            ]
        ):
            before = len(serving.out.lines)
            with Served.connect(host, port) as plain:
                plain.sendall(sent)
                if goes:
                    plain.shutdown(socket.SHUT_WR)
                assert not rest(plain).startswith(b"HTTP/")
            if end is not None:
                soon(lambda before=before: len(serving.out.lines) > before)
            ends = [line.split()[-1] for line in serving.out.lines[before:]]
            assert ends == ([end] if end else []), nr


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_client_certificate(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another authority, and who it vouches for."""
    return make_client_certificate(tmp_path_factory.mktemp("stranger"))


def said_to(address: str, certificate: Path, shown: Path | None) -> bytes:
    """What a client gets that shows this certificate, or none."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
    if shown is not None:
        context.load_cert_chain(shown / "client.pem", shown / "client.key")
    try:
        with Served.connect(host, port) as plain, context.wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(REQUEST)
            return rest(secure)
    except (ssl.SSLError, ConnectionError):  # TLS 1.3: told when the client reads
        return b""


@pytest.mark.parametrize(
    ("flags", "without", "of_stranger"),
    [("--cert-reqs 2", False, False), ("--cert-reqs 1", True, False), ("--cert-reqs 0", True, True)],
    ids=["required", "optional", "none"],
)
def test_certificates_of_clients(
    tmp_path: Path, certificate: Path, authority: Path, stranger: Path, flags: str, without: bool, of_stranger: bool
) -> None:
    files = ["--certfile", f"{certificate}/certificate.pem", "--keyfile", f"{certificate}/key.pem"]
    files += ["--ca-certs", f"{authority}/ca.pem", *flags.split()]
    with Serving(tmp_path, "misbehaving_apps:app", "-w", "1", "-b", ANY_PORT, *files) as serving:
        serving.wait_ready("web")
        address = serving.err.wait(r"serve: https://(\S+)")[1]
        for shown, is_let_in in ((authority, True), (None, without), (stranger, of_stranger)):
            assert status(said_to(address, certificate, shown)) == (200 if is_let_in else 0), shown


def test_who_vouches_for_clients_has_to_be_readable(tmp_path: Path, certificate: Path) -> None:
    tls = {"certificate": "certificate.pem", "key": "key.pem"}
    options = {name: str(certificate / file) for name, file in tls.items()} | {"client_ca": "none.pem"}
    settings = [part for name, path in options.items() for part in ("--set", f"fronts.serve.tls.{name}={path}")]
    done = clutch("serve", "web:app", "-b", ANY_PORT, *settings, cwd=tmp_path)
    assert (done.returncode, "fronts.serve.tls.client_ca" in done.stderr) == (1, True), done.stderr


def test_an_encrypted_key_is_answered_with_what_to_do(tmp_path: Path, certificate: Path) -> None:
    command = ["openssl", "pkey", "-in", str(certificate / "key.pem"), "-aes256", "-passout", "pass:x", "-out", "k.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    files = ["--certfile", f"{certificate}/certificate.pem", "--keyfile", "k.pem"]
    done = clutch("serve", "web:app", "-b", ANY_PORT, *files, cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(r"tls.key '.*k.pem': it is encrypted, .* openssl pkey -in '.*k.pem'", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("certificate_text", "key_text", "words"),
    [
        (None, None, "tls.certificate '.*c.pem': "),
        ("", "", "holds no certificate in PEM"),
        ("certificate.pem", "", "tls.key '.*k.pem': it holds none"),
        ("certificate.pem", "other.pem", "tls.key '.*k.pem' with tls.certificate '.*c.pem': "),
    ],
)
def test_certificates_that_cannot_be_used(
    tmp_path: Path, certificate: Path, certificate_text: str | None, key_text: str | None, words: str
) -> None:
    other = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(certificate / "other.pem")]
    subprocess.run(other, check=True, timeout=60)
    for name, source in (("c.pem", certificate_text), ("k.pem", key_text)):
        if source is not None:
            (tmp_path / name).write_text((certificate / source).read_text() if source else "")
    files = ["--certfile", "c.pem", "--keyfile", "k.pem"]
    done = clutch("serve", "web:app", "-b", ANY_PORT, *files, cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(words, done.stderr), done.stderr
