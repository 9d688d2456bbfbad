"""Served apps: Clutch with its defaults beside granian, gunicorn and uvicorn with their fastest documented settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benches.serve import peers
from benches.suite import BEST, OURS, Bar, Line, Preset, Row, Rows, Share, Size, at_most, faster, more, within
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
UVICORNS = ("gunicorn uvicorn", "uvicorn httptools")
Peers = tuple[str | Peer, ...]


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
    """Requests a second, and CPU time of each: in a session of its own, as a service runs, and in the load's. (Where
    autogroups are on, each session gets the same share of the CPUs.)"""
    noop, endpoint, in_threads = app_of(ASGI), app_of(FASTAPI, "/async/small"), app_of(FASTAPI, "/sync/small")
    few = clutch(app_of(FASTAPI, "/sync/small", "--worker-connections", "16"), name="clutch, 16 at a time")
    granian, gunicorn = peers.GRANIAN_ASGI, "gunicorn uvicorn"
    bare = over_http("no-op ASGI", noop, (*granian, *UVICORNS), rate({"granian": more(1.4)}))
    wsgi: Peers = (*peers.GRANIAN_WSGI, peers.GUNICORN_SYNC, "gunicorn gthread")
    bare_wsgi = over_http("no-op WSGI", app_of(WSGI), wsgi, rate({"granian": more(1), "gunicorn sync": more(8)}))
    fastapi = over_http("FastAPI, async def", endpoint, (*granian, gunicorn), rate({"granian": more(1.2)}))
    lines = (*rate({BEST: more(1.2)}), Line("cpu", title="CPU"))
    large = over_http("1 MB", app_of(FASTAPI, "/async/large"), (*granian, *UVICORNS), rate({BEST: more(0.9)}))
    return {
        **with_cpu("noop-asgi", bare, granian=(0.65, 0.92), gunicorn=(0.55, 0.65)),
        **with_cpu("noop-wsgi", replace(bare_wsgi, face="wsgi"), granian=(0.65, 0.75)),
        **with_cpu("fastapi-async", fastapi, granian=(0.8, 0.92), gunicorn=(0.85, 0.9)),
        "fastapi-sync": over_http("FastAPI, def", in_threads, (*granian, gunicorn), lines, variants=(few,)),
        "large": large,
    }


def rate(bars: dict[str, Bar]) -> tuple[Line, ...]:
    return (Line("rate", bars),)


def with_cpu(name: str, row: Row, **allowed: tuple[float, float]) -> Rows:
    """By peer: what the CPU time of a request may be of the peer's, alone and together with the load."""
    names = {"granian": "granian", "gunicorn": "gunicorn uvicorn"}
    alone, together = (
        Line("cpu", {names[peer]: within(both[nr]) for peer, both in allowed.items()}, title="CPU of a request")
        for nr in (0, 1)
    )
    title = f"{row.title}, in the session of the load"
    return {
        name: replace(row, lines=(*row.lines, alone), pace="fine"),
        f"{name}-together": replace(row, title=title, lines=(together,), pace="fine", over=without_session),
    }


def without_session(order: dict[str, Any]) -> dict[str, Any]:
    return {**order, "has_session": False}


def tails() -> Rows:
    """Requests come whether earlier ones are answered or not, and count from when they were due."""
    apps = {"noop": ("no-op ASGI", app_of(ASGI)), "fastapi": ("FastAPI, async def", app_of(FASTAPI, "/async/small"))}
    line = Line("p99", {BEST: within(1)})
    return {
        f"tail-{name}": replace(
            over_http(f"p99 at 60 % of the best peer's peak, {title}", app, (*peers.GRANIAN_ASGI, *UVICORNS), (line,)),
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
            (*peers.UVICORN_WEBSOCKETS, peers.GRANIAN_WEBSOCKETS),
            (Line("rate", {"uvicorn": more(1.2)}),),
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
    kill = (CLIENTS.callers * WORKERS, "gunicorn uvicorn", peers.GRANIAN_RESPAWNING)
    return {
        "memory": memory,
        "life-reload": life("reload", (), 0, "gunicorn uvicorn", peers.GRANIAN_RESPAWNING),
        "life-recycle": life("recycle", ("--max-requests", "2000"), 0, peers.GUNICORN_RECYCLING),
        # As many as are connected may be in the worker at that moment.
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
