"""Options of other programs, typed by habit: what to write here.

One table for the lab, of load generators; `habits_of_queues` has those of job queues. An option that means different
things to different programs has a row for each. Only options that a command does not have are looked up, so that a row
never takes one away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import click

from clutch.config.values import DURATION

TIME = "write {time}"
ROUNDS = "write {rounds}"
SAVE = "write {save}"
COUNT = "measurements have a time, not a count: write {example}"
SEVERAL = "write --requests FILE.toml (docs/lab.md), or --body 'MODULE:FUNCTION()'"
AUTH = "write --header 'authorization: Basic …'"
LEFT_OUT = "leave it out"
LEVELS = {"critical": "error", "fatal": "error"}
"""Levels of logs that have another name here."""
KEPT = f"{LEFT_OUT}: connections are kept open"

OF_BENCH = {
    "time": "--seconds TIME, which each round takes",
    "rounds": "--rounds N",
    "save": "--save FILE",
    "example": "--seconds 5s",
}
OF_TUNE = {"time": "--budget TIME", "rounds": "--budget 5m", "save": "--json > FILE", "example": "--budget 1m"}
WORDS: Mapping[str, Mapping[str, str]] = {"bench": OF_BENCH, "compare": OF_BENCH, "tune": OF_TUNE}
"""By command: its own options for the same purpose."""


@dataclass(frozen=True, slots=True)
class Habit:
    """Options of others, and what to write instead."""

    options: tuple[str, ...]
    whose: str
    instead: str
    """N, RANGE, TIME, LEVEL, TEXT and FILE stand for the value that was typed; what is in braces: see `WORDS`."""


HABITS = (
    Habit(("-c",), "wrk, hey, ab, oha", "write --callers N"),
    Habit(("--concurrency", "--clients"), "load generators", "write --callers N"),
    Habit(("-u",), "locust, k6", "write --callers N"),
    Habit(("-u",), "ab", "write --method PUT --body @FILE"),
    Habit(("--users",), "locust", "write --callers N"),
    Habit(("--vus",), "k6", "write --callers N"),
    Habit(("-r", "--spawn-rate"), "locust", "leave it out: all callers begin at once"),
    Habit(("-q",), "hey, oha", "write --rate N, of all callers together"),
    Habit(("-R",), "wrk2", "write --rate N"),
    Habit(("--rps",), "k6", "write --rate N"),
    Habit(("-d", "--duration"), "wrk, k6", TIME),
    Habit(("-d",), "curl, hey, oha", "write --body 'TEXT'"),
    Habit(("-z",), "hey, oha", TIME),
    Habit(("--run-time",), "locust", TIME),
    Habit(("-t",), "ab, locust", TIME),
    Habit(("-t", "--threads"), "wrk", "leave it out: the load has the threads that it needs"),
    Habit(("-t",), "hey, oha", LEFT_OUT),
    Habit(("--timeout",), "wrk, oha", LEFT_OUT),
    Habit(("-n",), "hey, ab, oha", COUNT),
    Habit(("--requests-number", "--num-requests"), "load generators", COUNT),
    Habit(("-i", "--iterations"), "k6", COUNT),
    Habit(("-i",), "ab", "write --method HEAD"),
    Habit(("-s", "--stage"), "k6", "leave it out: the load stays the same"),
    Habit(("-s", "--script"), "wrk", SEVERAL),
    Habit(("-s",), "ab", LEFT_OUT),
    Habit(("-f", "--locustfile"), "locust", SEVERAL),
    Habit(("--data", "--data-raw", "--data-binary"), "curl", "write --body 'TEXT'"),
    Habit(("-X", "--request"), "curl", "write --method TEXT"),
    Habit(("-D",), "hey, oha", "write --body @FILE"),
    Habit(("-p",), "ab", "write --body @FILE"),
    Habit(("-T",), "hey, ab, oha", "write --header 'content-type: TEXT'"),
    Habit(("-A",), "hey, oha", "write --header 'accept: TEXT'"),
    Habit(("-A",), "ab", AUTH),
    Habit(("-a",), "hey, oha", AUTH),
    Habit(("-C",), "ab", "write --header 'cookie: TEXT'"),
    Habit(("-k",), "ab", KEPT),
    Habit(("--disable-keepalive",), "oha", KEPT),
    Habit(("--http2",), "oha", "leave it out: HTTP/1.1 is measured"),
    Habit(("--insecure",), "oha", "leave it out: TLS is not measured"),
    Habit(("--latency",), "wrk", "leave it out: latencies are always shown"),
    Habit(("-o", "--output-format"), "hey, oha", "write --json"),
    Habit(("--csv",), "locust", "write --json"),
    Habit(("--no-tui",), "oha", LEFT_OUT),
    Habit(("--headless",), "locust", LEFT_OUT),
    Habit(("--host",), "locust", "TARGET of `clutch bench` is the URL: write TEXT alone"),
    Habit(("-n", "--values"), "pyperf", ROUNDS),
    Habit(("-p", "--processes"), "pyperf", ROUNDS),
    Habit(("--rigorous", "--fast"), "pyperf", ROUNDS),
    Habit(("-l", "--loops"), "pyperf", COUNT),
    Habit(("--warmups",), "pyperf", "leave it out: work runs until its rate is steady, before it is measured"),
    Habit(("--affinity",), "pyperf", "leave it out, or run all of it under `taskset`"),
    Habit(("-o", "--output"), "pyperf", SAVE),
    # Of Clutch's own commands, where the one that was typed lacks them.
    Habit(("--budget",), "clutch tune", TIME),
    Habit(("--slo", "--memory", "--threads-ok", "--write", "--pool"), "clutch tune", "use `clutch tune`"),
    Habit(("--seconds", "--rounds"), "clutch bench", "write {example}, the time to measure"),
    Habit(("--save",), "clutch bench", SAVE),
    Habit(("--against", "--scale", "--recycling"), "clutch bench", "use `clutch bench`"),
    Habit(("-w", "--workers", "--profile", "--threads", "--tasks"), "clutch bench", "use `clutch bench`"),
    Habit(("--tcp", "--message", "--pid"), "clutch bench", "use `clutch bench`"),
    Habit(("--store",), "clutch bench", "leave it out: a comparison has stores of its own, SQLite and Redis"),
    Habit(("--peers", "--list"), "clutch compare", "use `clutch compare`"),
    Habit(("--factory",), "clutch serve", "write 'MODULE:create_app()' --path /"),
)


class CommandWithHabits(click.Command):
    """A command that knows options of other programs."""

    habits: ClassVar[Sequence[Habit]] = HABITS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            own = {flag for option in self.get_params(ctx) for flag in option.opts}
            if not (said := self.whole_line(typed) or "\n".join(answers(self.name or "", typed, own, self.habits))):
                raise
            raise click.UsageError(said, ctx) from None

    def whole_line(self, typed: Sequence[str]) -> str | None:
        """What to write in place of all that was typed, where that is known."""
        return None


def answers(command: str, arguments: Sequence[str], own: Set[str], table: Sequence[Habit] = HABITS) -> list[str]:
    """Returns a sentence for each option in `arguments` that the table has and the command, with its `own`, has not."""
    names = dict.fromkeys(name for text in arguments if (name := name_of(text)) is not None and name not in own)
    return [said for name in names if (said := answer(command, name, value_of(name, arguments), table))]


def answer(command: str, option: str, value: str | None, table: Sequence[Habit]) -> str | None:
    rows = [row for row in table if option in row.options]
    found = [(row.whose, filled(row.instead.format(**WORDS.get(command, {})), value)) for row in rows]
    if not found:
        return None
    if len(found) == 1:
        return f"no option {option} (of {found[0][0]}): {found[0][1]}"
    return "\n".join([f"no option {option}:", *(f"  of {whose}: {instead}" for whose, instead in found)])


def name_of(argument: str) -> str | None:
    """The option in an argument: `--name` or `--name=value`, `-c` or `-c64`."""
    if argument.startswith("--"):
        return argument.partition("=")[0]
    return argument[:2] if argument.startswith("-") and len(argument) > 1 else None


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """What follows the option, in the same argument or in the next."""
    for nr, argument in enumerate(arguments):
        if name_of(argument) == option:
            attached = argument[len(option) :].removeprefix("=")
            following = next((text for text in arguments[nr + 1 : nr + 2] if name_of(text) is None), None)
            return attached or following
    return None


def filled(instead: str, value: str | None) -> str:
    """Put the value in place of its name, if it is such a value."""
    if value is None:
        return instead
    values = {
        "N": value if re.fullmatch(r"\d+(\.\d+)?", value) else None,
        "RANGE": range_of(value),
        "TIME": time_of(value),
        "LEVEL": LEVELS.get(value.lower(), value.lower()),
    }
    return re.sub(
        r"\b(N|RANGE|TIME|LEVEL|TEXT|FILE)(KB)?\b(?!\.toml)",
        lambda found: (values.get(found[1], value) or found[1]) + (found[2] or ""),
        instead,
    )


def range_of(value: str) -> str:
    """`8,2` of Celery, the most first, as `2-8`."""
    numbers = sorted(int(text) for text in value.split(",") if text.isdecimal())
    return "-".join(map(str, numbers)) if len(numbers) in (1, 2) else "2-8"


def time_of(value: str) -> str | None:
    """Seconds without a unit get theirs. None: it is no duration."""
    text = f"{value}s" if re.fullmatch(r"\d+(\.\d+)?", value) else value
    try:
        DURATION.parse(text)
    except ValueError:
        return None
    return text
