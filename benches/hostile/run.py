"""Runs one attack against a server of its own, weighs it, and judges what it cost."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field

from benches.hostile.attack import Attack, Bounds
from benches.hostile.server import ROOT, Server, answers_http, running
from benches.hostile.servers import clutch
from benches.hostile.watch import Both, NormalClient, Scales, weigh_both
from clutch.lab import watching

_OPTIONS = {"head_timeout": "2s", "body_timeout": "2s", "write_timeout": "3s", "keep_alive": "3s"}
_WARM_UP = 20
_SETTLE_SECONDS_MAX = 4.0
_OVERTIME_SECONDS = 60
_SETTLED_MB = 8.0


@dataclass
class Found:
    """One line of the table."""

    name: str
    answer: str
    client: NormalClient
    before: Both
    worst: Both
    after: Both
    complaints: list[str] = field(default_factory=list)


def run(attack: Attack) -> Found:
    """Takes the attack's seconds, some for the start, and some for what is given back."""
    admin_port = _free_port()
    with running(_server(attack, admin_port), answers_http("/ping")) as answering:
        client = NormalClient(answering.port)
        for _ in range(_WARM_UP):
            assert client.is_answered()
        workers = set(watching.below(answering.pid))
        before = weigh_both(answering.pid)
        scales = Scales(answering.pid)
        with scales.watching(), client.asking():
            answer, complaint = _attacked(attack, answering.port, admin_port)
        after = _settled(answering.pid, before)
        lost = workers - set(watching.below(answering.pid))
    found = Found(attack.name, answer, client, before, scales.worst, after)
    found.complaints = [*complaint, *_complaints(attack.bounds, found)]
    if lost and not attack.bounds.workers_die:
        found.complaints.append(f"{len(lost)} process(es) died")
    return found


def _server(attack: Attack, admin_port: int) -> Server:
    options = {**_OPTIONS, **attack.options}
    settings = [flag for name, value in options.items() for flag in ("--set", f"fronts.serve.{name}={value}")]
    flags = [flag.replace("{admin}", str(admin_port)) for flag in attack.flags]
    server = clutch(attack.app, *settings, *flags)
    if attack.descriptors_max is None:
        return server
    limited = ("sh", "-c", f'ulimit -n {attack.descriptors_max}; exec "$@"', "sh")
    return dataclasses.replace(server, command=(*limited, *server.command))


def _attacked(attack: Attack, port: int, admin_port: int) -> tuple[str, list[str]]:
    """In a process of its own, so that the normal client is not held up by the attacker's work."""
    plan = json.dumps([attack.name, port, admin_port, attack.seconds])
    command = [sys.executable, "-m", "benches.hostile.attacker", plan]
    seconds_max = attack.seconds + _OVERTIME_SECONDS
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return "the attacker did not end", ["the attacker did not end"]
    if done.returncode:
        return "the attacker failed", [done.stderr.strip().splitlines()[-1]]
    answer, wrong = json.loads(done.stdout)
    return answer, [answer] if wrong else []


def _settled(pid: int, before: Both) -> Both:
    """What is left, once it is about what it was, or after some seconds."""
    end = time.monotonic() + _SETTLE_SECONDS_MAX
    after = weigh_both(pid)
    while after.own_mb > before.own_mb + _SETTLED_MB and time.monotonic() < end:
        time.sleep(0.1)
        after = weigh_both(pid)
    return after


def _complaints(bounds: Bounds, found: Found) -> list[str]:
    worst, before = found.worst, found.before
    grown = {
        "dispatcher, MB": (worst.dispatcher.own_mb - before.dispatcher.own_mb, bounds.dispatcher_mb),
        "workers, MB": (worst.workers.own_mb - before.workers.own_mb, bounds.workers_mb),
        "dispatcher, descriptors": (
            worst.dispatcher.descriptors - before.dispatcher.descriptors,
            bounds.dispatcher_descriptors,
        ),
        "workers, descriptors": (worst.workers.descriptors - before.workers.descriptors, bounds.workers_descriptors),
        "left over, MB": (found.after.own_mb - before.own_mb, bounds.left_mb),
        "normal client's failures": (found.client.failed, bounds.failed_max),
    }
    return [f"{what}: +{figure:.0f}, allowed {most:g}" for what, (figure, most) in grown.items() if figure > most]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
