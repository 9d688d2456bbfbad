"""Served apps: Clutch with its defaults beside servers of the lab with their fastest documented settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benches.serve import peers
from benches.suite import BEST, OURS, Line, Preset, Row, Rows, Share, Size, at_most, faster, more, within
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.peers.seam import Face, Peer
from clutch.lab.presets import tcp
from clutch.lab.setting import Setting
from clutch.lab.work import App, Request

ASGI, WSGI, ECHO = (f"benches.serve.apps:{name}" for name in ("noop_asgi", "noop_wsgi", "echo_websocket"))
FASTAPI = "benches.serve.fastapi_app:app"
WORKERS = 2
CLIENTS = Load(100)
KILLED_MAX = 64
"""Requests that may fail for each worker that is killed: those that it had begun."""
Peers = tuple[str | Peer, ...]
FAST: Peers = (
    *peers.GRANIAN_ASGI,
    "gunicorn uvicorn",
    "gunicorn asgi",
    "uvicorn httptools",
    "uvicorn zttp",
    "peregrine",
    "weft",
    "h2corn",
)
FAST_WSGI: Peers = (*peers.GRANIAN_WSGI, peers.GUNICORN_SYNC, "gunicorn gthread", "peregrine", "weft")


def rows(size: Size) -> Rows:
    return {**rates(), **tails(), **protocols(), **lives(), "grid": Preset("grid")}


def clutch(app: App, workers: int = WORKERS, name: str = OURS) -> Contender:
    one = contender_of(app, Setting("auto", workers), CLIENTS)
    # What it knows of itself is not asked: that would be among its CPU time.
    return replace(one, name=name, order={**one.order, "is_clutch": False})


def app_of(target: str, path: str = "/", *flags: str) -> App:
    return App(target, (Request(path),), flags)


def over_http(title: str, app: App, them: Peers, lines: tuple[Line, ...], face: Face = "asgi", **more: Any) -> Row:
    ours = (clutch(app), *more.pop("variants", ()))
    return Row(title, lines, ours, peers=them, work=app, face=face, loads=(CLIENTS,), seconds=1.0, **more)


def rates() -> Rows:
    """CPU time of each request, which decides, and requests a second; each server in a session of its own, as a service
    runs."""
    noop, wsgi = app_of(ASGI), app_of(WSGI)
    endpoint, in_threads, large = (app_of(FASTAPI, f"/{path}") for path in ("async/small", "sync/small", "async/large"))
    few = clutch(app_of(FASTAPI, "/sync/small", "--worker-connections", "16"), name="clutch, 16 at a time")
    return {
        "noop-asgi": rate("no-op ASGI", noop, 0.95),
        "noop-wsgi": rate("no-op WSGI", wsgi, 1, FAST_WSGI, face="wsgi"),
        "fastapi-async": rate("FastAPI, async def", endpoint, 0.95),
        "fastapi-sync": rate("FastAPI, def", in_threads, 0.95, variants=(few,)),
        "large": rate("1 MB", large, 1),
    }


def rate(title: str, app: App, allowed: float, them: Peers = FAST, **more: Any) -> Row:
    """`allowed`: CPU time of a request as a share of that of the best peer, whichever it is."""
    lines = (Line("cpu", {BEST: within(allowed)}, title="CPU of a request"), Line("rate"))
    return over_http(title, app, them, lines, pace="fine", **more)


def tails() -> Rows:
    """Requests come whether earlier ones are answered or not, and count from when they were due."""
    apps = {"noop": ("no-op ASGI", app_of(ASGI)), "fastapi": ("FastAPI, async def", app_of(FASTAPI, "/async/small"))}
    line = Line("p99", {BEST: within(1)})
    return {
        f"tail-{name}": replace(
            over_http(f"p99 at 60 % of the best peer's peak, {title}", app, FAST, (line,)),
            loads=(Share(0.6, CLIENTS.callers, "peers"),),
            seconds=2.0,
        )
        for name, (title, app) in apps.items()
    }


def protocols() -> Rows:
    """WebSockets; TCP handlers of each model beside the same written by hand, clients and servers on CPUs of their own:
    a ping-pong goes at twice the rate where both happen to share one."""
    ours = {one.name: replace(one, name=OURS, order={**one.order, "is_clutch": False}) for one in tcp.contenders()}
    plain = {one.name: one for one in tcp.contenders()}
    by_hand = plain["plain asyncio"]
    command = ["uvloop" if part == "asyncio" else part for part in by_hand.order["command"]]
    on_uvloop = Contender("plain uvloop", {**by_hand.order, "command": command}, by_hand.load)
    models = {
        "thread": ("Clutch thread 1×4", (plain["plain thread"],)),
        "asyncio": ("Clutch async 1", (by_hand, on_uvloop)),
        "process": ("Clutch process 4", (plain["plain process"],)),
    }
    lines = (Line("cpu", {BEST: faster(0.95)}, title="CPU of an answer"), Line("rate", {BEST: more(0.95)}))
    loads = (Load(1), Load(2), Load(4))
    return {
        "websocket": over_http(
            "WebSocket messages that come back",
            app_of(ECHO),
            (*peers.UVICORN_WEBSOCKETS, peers.GRANIAN_WEBSOCKETS, "peregrine", "weft"),
            (Line("rate", {"uvicorn": more(2), "peregrine": more(1)}),),
            over=lambda order: {**order, "kind": "websocket", "message": "hello, clutch"},
        ),
        **{
            f"tcp-{name}": Row(f"TCP, {name}", lines, (ours[our],), them, loads=loads, pace="fine", place="apart")
            for name, (our, them) in models.items()
        },
        "tcp-table": Preset("tcp"),
    }


def lives() -> Rows:
    """What eight workers weigh, and what fails while workers are replaced."""
    both = App(FASTAPI, (Request("/async/small"), Request("/sync/small")))
    bars = {"gunicorn uvicorn": within(0.5), "gunicorn --preload": within(1)}
    memory = Row(
        "memory of 8 FastAPI workers (PSS)",
        (Line("memory", bars),),
        (clutch(both, 8),),
        peers=("gunicorn uvicorn", peers.GUNICORN_PRELOADED, "granian st"),
        work=both,
        face="asgi",
        workers=8,
        loads=(CLIENTS,),
        seconds=2.0,
        pace="slow",
        is_fresh=True,
    )
    kill = (KILLED_MAX * WORKERS, "gunicorn uvicorn", peers.GRANIAN_RESPAWNING)
    return {
        "memory": memory,
        "life-reload": life("reload", (), 0, "gunicorn uvicorn", peers.GRANIAN_RESPAWNING),
        "life-recycle": life("recycle", ("--max-requests", "2000"), 0, peers.GUNICORN_RECYCLING),
        "life-kill": life("kill", (), *kill),
    }


def life(change: str, flags: tuple[str, ...], allowed: int, *them: str | Peer) -> Row:
    def disturbed(order: dict[str, Any]) -> dict[str, Any]:
        asked = {"order": order, "change": change, "workers": WORKERS}
        return {"kind": "probe", "module": "benches.serve.life", "name": "through", "kwargs": asked}

    lines = (
        Line("failed", at_most(allowed), unit="requests", title="failed"),
        Line("refused", at_most(0), unit="requests", title="refused"),
        *(Line(name, unit="requests", title=name) for name in ("answered", "status", "broken off")),
        Line("took", unit="s", title="took"),
    )
    work = app_of(FASTAPI, "/async/small", *flags)
    row = over_http(f"a {change} under load", work, them, lines, over=disturbed, pace="slow", is_fresh=True)
    return replace(row, note="100 clients that never pause; failed: all that had no right answer")
