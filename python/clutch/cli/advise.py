"""`clutch advise`: what would make a running server or program faster, by what it has measured anyway.

It looks a few times, some seconds apart, as `clutch ps` does. What follows is decided in clutch.control.advice.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from clutch.cli.flags import as_json
from clutch.cli.remote import dispatcher_flags, find
from clutch.cli.table import printable
from clutch.control.advice import Advice, Facts, advise
from clutch.control.client import ControlError
from clutch.control.looking import facts_of, looks

LOOKS_PER_SECOND, LOOKS_MAX = 2, 20
SECONDS_MAX = 3600.0


@click.command("advise", short_help="Say which option would make a running server faster.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, SECONDS_MAX),
    default=5.0,
    show_default=True,
    help="How long to look.",
)
@dispatcher_flags
@as_json
def command(seconds: float, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Look at the pools of a running server or program, and say which option would make each of them faster.

    Of each pool it prints a line of figures, and one sentence where it is plain what to change. Run it while there is
    load: what happened before does not count.
    """
    where = find(socket, pid, only_looks=True)
    began = time.monotonic()
    count = max(2, min(LOOKS_MAX, round(LOOKS_PER_SECOND * seconds) + 1))
    found = facts_of(looks(where, seconds, count))
    if not found:
        raise ControlError(f"{where} tells of no pool that can be judged: it has none, or is of another version")
    judged = [(facts, advise(facts)) for facts in found]
    click.echo(json.dumps(as_data(judged, time.monotonic() - began), indent=2) if as_json else as_text(judged))


def as_text(judged: Sequence[tuple[Facts, Advice]]) -> str:
    lines = [line for facts, advice in judged for line in (facts.line(), f"  {advice.sentence}")]
    return "\n".join(map(printable, lines))


def as_data(judged: Sequence[tuple[Facts, Advice]], seconds: float) -> dict[str, Any]:
    pools = [
        {
            "pool": facts.pool,
            "advice": advice.sentence,
            "kind": advice.kind,
            "options": dict(advice.options),
            "figures": {**dataclasses.asdict(facts), "waits": facts.waits, "slots": facts.slots},
        }
        for facts, advice in judged
    ]
    return {"pools": pools, "seconds": seconds}
