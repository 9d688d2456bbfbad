"""Brokers that are reached by TLS, by sentinels, and by URLs of every kind."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from support.celery_house import loaded, node, outcome
from support.clutch_process import soon
from support.redis_server import RedisServer, free_port
from support.serve_process import make_server_certificate

celery = pytest.importorskip("celery")


def stored(broker: str, **conf: Any) -> str:
    from clutch.celery.apps import store_url

    app = celery.Celery("shop", broker=broker)
    app.conf.update(conf)
    return store_url(app)


def test_the_url_of_a_broker_is_that_of_a_store() -> None:
    assert stored("redis://h") == "celery://h:6379/0"
    assert stored("redis://:p%40w@h:7000/3") == "celery://:p%40w@h:7000/3"
    assert stored("redis+socket:///run/r.sock?virtual_host=2") == "celery+unix:///run/r.sock?db=2"
    assert (
        stored("rediss://h:7000/3?ssl_cert_reqs=required&ssl_ca_certs=/a/ca.pem")
        == "celerys://h:7000/3?ca=%2Fa%2Fca.pem"
    )
    assert stored("rediss://h:7000/3") == "celerys://h:7000/3?verify=none", "kombu verifies nothing unless it is asked"
    given = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_certfile": "/c", "ssl_keyfile": "/k"}
    assert stored("redis://h:7000/3", broker_use_ssl=given) == "celerys://h:7000/3?cert=%2Fc&key=%2Fk"
    sentinels = {"master_name": "main", "sentinel_kwargs": {"password": "s3"}}
    found = stored("sentinel://:pw@a:26379/2;sentinel://:pw@b:26380/2", broker_transport_options=sentinels)
    assert found == "celery+sentinel://:pw@a:26379,b:26380/main/2?sentinel_password=s3"


def test_a_broker_that_is_none_of_these_is_told() -> None:
    from clutch.errors import ConfigError

    for broker, conf, word in (
        ("amqp://h", {}, "clutch work runs apps whose broker is Redis"),
        ("", {}, "the app 'shop' has no broker_url"),
        ("sentinel://h", {}, "master_name is missing"),
        ("redis://h", {"broker_use_ssl": {"ssl_check_hostname": False}}, "ssl_check_hostname"),
    ):
        with pytest.raises(ConfigError, match=word):
            stored(broker, **conf)


def test_a_broker_that_is_away_at_the_start_is_waited_for(tmp_path: Path) -> None:
    server, port = RedisServer(tmp_path), free_port()
    broker = f"redis://127.0.0.1:{port}/0"
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        dispatcher = ends.enter_context(node(server, "--workers", "1", SHOP_BROKER=broker))
        dispatcher.err.wait("store_down|cannot be had|refused")
        server.start("--port", str(port))
        shop = ends.enter_context(loaded(server, SHOP_BROKER=broker))
        assert outcome(shop.add.delay(1, 2)) == 3
        soon(lambda: shop.app.control.inspect(timeout=2).ping())


def test_tasks_run_behind_tls(tmp_path: Path) -> None:
    (tmp_path / "certificates").mkdir()
    certificates = make_server_certificate(tmp_path / "certificates")
    files = {"cert-file": "certificate.pem", "key-file": "key.pem", "ca-cert-file": "ca.pem"}
    flags = [word for name, file in files.items() for word in (f"--tls-{name}", str(certificates / file))]
    server, port = RedisServer(tmp_path), free_port()
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        server.start("--tls-port", str(port), "--tls-auth-clients", "no", *flags)
        broker = f"rediss://localhost:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={certificates / 'ca.pem'}"
        ends.enter_context(node(server, "--workers", "1", SHOP_BROKER=broker))
        shop = ends.enter_context(loaded(server, SHOP_BROKER=broker))
        assert outcome(shop.add.delay(1, 2)) == 3


def test_tasks_run_on_the_server_that_sentinels_name(tmp_path: Path) -> None:
    server, sentinel, ports = RedisServer(tmp_path), RedisServer(tmp_path, "sentinel"), (free_port(), free_port())
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        ends.callback(sentinel.kill)
        server.start("--port", str(ports[0]))
        sentinel.start_sentinel(f"port {ports[1]}\nsentinel monitor main 127.0.0.1 {ports[0]} 1\n")
        given = {"SHOP_BROKER": f"sentinel://127.0.0.1:{ports[1]}/0", "SHOP_PRIMARY": "main"}
        ends.enter_context(node(server, "--workers", "1", **given))
        shop = ends.enter_context(loaded(server, **given))
        assert outcome(shop.add.delay(1, 2)) == 3
