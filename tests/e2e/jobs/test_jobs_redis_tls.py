"""Redis behind TLS, alone and with a sentinel that has it too."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from support.clutch_process import clutch, environment
from support.redis_server import RedisServer
from support.serve_process import make_server_certificate


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


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
