"""What 500 slots weigh, each in a job that sleeps, all processes of the consumer counted. Clutch only."""

from __future__ import annotations

from functools import partial

from benches import harness, processes
from benches.harness import Report, Scale, Skipped, interleave
from benches.jobs import contestants, launch, measured, redis_server
from benches.jobs.contestants.clutch import Clutch
from benches.jobs.redis_server import RedisServer

_SLOTS = 500
_JOBS = {"greenlet": "nap", "async": "nap_async"}


def run(scale: Scale) -> Report:
    """Megabytes PSS, by profile."""
    if scale.peers_only:
        raise Skipped("Clutch only")
    if why := contestants.named(contestants.CLUTCH).missing():
        raise Skipped(why)
    with redis_server.running() as server:
        field = [harness.Contestant(profile, partial(megabytes, server, profile)) for profile in _JOBS]
        samples = interleave(field, scale.slow_rounds)
    cells = {profile: [measured.shown(values)] for profile, values in samples.items()}
    title = f"memory, {_SLOTS} slots in a job that sleeps"
    note = f"memory: {redis_server.version()}; greenlet: time.sleep, async: asyncio.sleep"
    return Report(notes=[note], sheets=[measured.sheet(title, ["profile", "PSS MB [95 %]"], cells)])


def megabytes(server: RedisServer, profile: str) -> float:
    """When all slots are taken."""
    contestant = Clutch()
    contestant.profile = profile
    server.flush()
    with launch.folder() as place:
        launch.agent(contestant, place, server.url, "many", _JOBS[profile], _SLOTS)
        with launch.consumer(contestant, place, server.url, _SLOTS) as running:
            if not running.wait_runs(_SLOTS):
                raise RuntimeError(f"{profile}: {running.runs()} of {_SLOTS} jobs started: {running.tail()}")
            return processes.pss_bytes(processes.tree(running.pid)) / 1e6
