"""Redis behind TLS, alone and with a sentinel that has it too."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import clutch, environment
from support.jobs_house import worker
from support.redis_server import RedisServer, free_port
from support.serve_process import make_client_certificate, make_server_certificate


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    (tmp_path / "certificates").mkdir()
    return make_server_certificate(tmp_path / "certificates")


def test_redis_and_its_sentinel_are_reached_with_tls(tmp_path: Path, certificates: Path) -> None:
    tls = {
        "tls-cert-file": certificates / "certificate.pem",
        "tls-key-file": certificates / "key.pem",
        "tls-ca-cert-file": certificates / "ca.pem",
        "tls-auth-clients": "no",
        "tls-replication": "yes",
    }
    server, sentinel = RedisServer(tmp_path), RedisServer(tmp_path, "sentinel")
    ports = free_port(), free_port()
    lines = [f"port 0\ntls-port {ports[1]}", *(f"{name} {value}" for name, value in tls.items())]
    lines += ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"]
    lines += [f"sentinel monitor main localhost {ports[0]} 1"]
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        ends.callback(sentinel.kill)
        flags = [flag for name, value in tls.items() for flag in (f"--{name}", str(value))]
        server.start("--tls-port", str(ports[0]), *flags)
        sentinel.start_sentinel("\n".join([*lines, ""]))
        trusting = environment() | {"SSL_CERT_FILE": str(certificates / "ca.pem")}
        for url in (f"rediss://localhost:{ports[0]}", f"rediss+sentinel://localhost:{ports[1]}/main"):
            paused = clutch("jobs", "pause", "mail", "--store", url, cwd=tmp_path, env=trusting)
            assert paused.stdout.startswith("queue mail paused"), paused.stderr
            wary = clutch("jobs", "stats", "--store", url, cwd=tmp_path)
            assert wary.returncode != 0
            assert "TLS" in wary.stderr


@contextlib.contextmanager
def redis_with(folder: Path, certificate: Path, key: Path, *flags: str) -> Iterator[str]:
    """The URL of a server that shows this certificate."""
    server, port = RedisServer(folder), free_port()
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
        if "--tls-ca-cert-file" not in flags:
            files += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]
        server.start("--tls-port", str(port), *files, *flags)
        yield f"rediss://localhost:{port}"


def asked(folder: Path, url: str, **more: str) -> tuple[bool, str]:
    """Whether the store can be had, and what is said."""
    done = clutch("jobs", "stats", "--store", url, cwd=folder, env={**environment(), **more})
    return done.returncode == 0, done.stderr


def make(folder: Path, *commands: str) -> None:
    for command in commands:
        subprocess.run(shlex.split(command), cwd=folder, check=True, timeout=60, stderr=subprocess.DEVNULL)


def test_an_authority_is_named_in_the_url(tmp_path: Path, certificates: Path) -> None:
    with redis_with(tmp_path, certificates / "certificate.pem", certificates / "key.pem") as url:
        is_there, said = asked(tmp_path, url)
        assert not is_there and "signed by no authority that this machine knows: give the certificate" in said
        assert asked(tmp_path, f"{url}?ca={certificates}/ca.pem") == (True, "")
        assert asked(tmp_path, f"{url}?verify=none") == (True, "")
        is_there, said = asked(tmp_path, f"{url}?ca={certificates}/none.pem")
        assert not is_there and f"ca={certificates}/none.pem: No such file" in said
        for file, option, told in [
            ("own", "ca", "is no file in PEM with a certificate"),
            ("key.pem", "ca", "is no file in PEM with a certificate: it needs a line -----BEGIN CERTIFICATE-----"),
            ("none.pem", "cert", "none.pem: No such file"),
            ("certificate.pem", "cert", "certificate.pem has no private key: give its file by &key=FILE"),
        ]:
            is_there, said = asked(tmp_path, f"{url}?{option}={certificates}/{file}")
            assert not is_there and told in said and "InvalidClientConfig" not in said, said
        is_there, said = asked(tmp_path, url.replace("rediss://", "redis://"))
        assert not is_there and said.endswith("if its port is for TLS, write rediss:// in place of redis://\n"), said
        is_there, said = asked(tmp_path, f"{url}?ssl_cert_reqs=none")
        assert not is_there and "write verify=none" in said
        other = url.replace("localhost", "127.0.0.1")
        is_there, said = asked(tmp_path, f"{other}?ca={certificates}/ca.pem")
        assert not is_there and "for another host than 127.0.0.1" in said


def test_a_server_whose_certificate_is_not_verified_is_warned_of(tmp_path: Path, certificates: Path) -> None:
    shown = redis_with(tmp_path, certificates / "certificate.pem", certificates / "key.pem")
    with shown as url, worker(tmp_path, f"{url}?verify=none") as server:
        server.err.wait(r"its certificate is not verified \(verify=none\)")


@pytest.mark.parametrize(
    ("days", "constraint", "said"),
    [
        (3, "CA:TRUE", "it is that of an authority, as `openssl req -x509` makes it"),
        (3, "CA:FALSE", None),
        (-1, "CA:FALSE", "it has expired"),
    ],
)
def test_self_signed_certificates(tmp_path: Path, days: int, constraint: str, said: str | None) -> None:
    (tmp_path / "own").write_text(f"subjectAltName = DNS:localhost\nbasicConstraints = {constraint}\n")
    make(
        tmp_path,
        "openssl req -newkey rsa:2048 -nodes -keyout k -out r -subj /CN=x",
        f"openssl x509 -req -in r -signkey k -days {days} -extfile own -out c",
    )
    with redis_with(tmp_path, tmp_path / "c", tmp_path / "k") as url:
        is_there, told = asked(tmp_path, f"{url}?ca={tmp_path}/c")
        assert (is_there, told) == (True, "") if said is None else (not is_there and said in told), told


def test_a_server_may_want_a_certificate(tmp_path: Path, certificates: Path) -> None:
    theirs = tmp_path / "clients"
    theirs.mkdir()
    make_client_certificate(theirs)
    authority = ("--tls-ca-cert-file", str(theirs / "ca.pem"), "--tls-auth-clients", "yes")
    with redis_with(tmp_path, certificates / "certificate.pem", certificates / "key.pem", *authority) as url:
        trusting = f"{url}?ca={certificates}/ca.pem"
        is_there, said = asked(tmp_path, trusting)
        assert not is_there and "it wants a certificate of its clients: give ?cert=FILE&key=FILE" in said, said
        assert asked(tmp_path, f"{trusting}&cert={theirs}/client.pem&key={theirs}/client.key") == (True, "")
        both = theirs / "both.pem"
        both.write_text((theirs / "client.pem").read_text() + (theirs / "client.key").read_text())
        assert asked(tmp_path, f"{trusting}&cert={both}") == (True, "")
