"""Who a client is, and how and when its request came: TLS, the PROXY protocol, and what proxies write into heads."""

from __future__ import annotations

import re
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from running import clutch
from serving import ANY_PORT, Serving
from test_bad_input import HOST, LAST, Served, body, rest, serve, status

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BINARY = SIGNATURE + b"\x21\x11\x00\x0c" + bytes([1, 2, 3, 4, 5, 6, 7, 8]) + (9).to_bytes(2, "big") + b"\x00\x0a"
REQUEST = f"GET / HTTP/1.1\r\n{LAST}\r\n".encode()


def ask(served: Served, *lines: str) -> dict[str, Any]:
    more = "".join(line + "\r\n" for line in lines)
    return body(served.say(f"GET / HTTP/1.1\r\n{LAST}{more}\r\n"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `certificate.pem` and `key.pem`."""
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=DNS:localhost"], cwd=folder, check=True, timeout=60)
    return folder


# Heads


def test_the_nearest_proxy_is_believed_and_no_other(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving:app") as served:
        found = ask(served, "X-Forwarded-For: 6.6.6.6, 1.2.3.4", "X-Forwarded-Proto: https")
        assert (found["client"], found["scheme"]) == (["1.2.3.4", 0], "https")
        (line,) = served.logged()
        assert line["client"] == "1.2.3.4"


def test_who_is_not_named_is_not_believed(tmp_path: Path) -> None:
    with serve(tmp_path, "misbehaving:app", forwarded_allow="10.0.0.0/8") as served:
        found = ask(served, "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https", "X-Request-Start: t=1")
        assert (found["client"][0], found["scheme"]) == ("127.0.0.1", "http")


def test_time_before_the_server_counts(tmp_path: Path) -> None:
    """Two seconds are allowed."""
    with serve(tmp_path, "misbehaving:app") as served:
        for ago, expected in ((0.5, 200), (10, 503)):
            start = f"X-Request-Start: t={int((time.time() - ago) * 1000)}\r\n"
            assert status(served.say(f"GET / HTTP/1.1\r\n{LAST}{start}\r\n")) == expected
            (line,) = served.logged()
            assert ago <= line["waited_s"] < ago + 5


# The PROXY protocol


@pytest.mark.parametrize("head", [b"PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n", BINARY])
def test_a_proxy_speaks_for_its_client(tmp_path: Path, head: bytes) -> None:
    with serve(tmp_path, "misbehaving:app", proxy_protocol="true", access_log="access") as served:
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
    with serve(tmp_path, "misbehaving:app", proxy_protocol="true", access_log="access") as served:
        for head in PROXY_HEADS.values():
            assert served.say(head) == b""
        assert status(served.say(b"PROXY UNKNOWN\r\n" + REQUEST)) == 200
        served.serving.err.wait("WARNING fronts.serve.proxy_protocol: a connection was closed")


# TLS


def test_tls_with_both_versions_of_http(tmp_path: Path, certificate: Path) -> None:
    tls = {"tls.certificate": str(certificate / "certificate.pem"), "tls.key": str(certificate / "key.pem")}
    letters = [letter for name, value in tls.items() for letter in ("--set", f"fronts.serve.{name}={value}")]
    with Serving(tmp_path, "misbehaving:app", "-w", "1", "-b", ANY_PORT, *letters) as serving:
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
