"""Kinds of work that the lab measures, and the options that have an effect on some of them alone.

An option that was typed and would have no effect is an error: nobody shall believe that it was measured.
"""

from __future__ import annotations

import enum
from collections.abc import Set
from dataclasses import dataclass

import click


class Kind(enum.Enum):
    """As messages name it."""

    CALLS = "calls of a function"
    APP = "an app that Clutch serves"
    URL = "a server that runs already"
    TCP = "a handler of TCP"
    JOBS = "jobs"
    PRESET = "a preset"


CALLS, APP, URL, TCP, JOBS, PRESET = Kind
EVERY = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Only:
    """Options, by the names of their parameters, that have an effect on some kinds alone."""

    options: tuple[str, ...]
    kinds: Set[Kind]
    instead: str


OF_PRESETS = ("scale", "html", "as_json")
OPTIONS = (
    Only(("method", "headers", "body"), {APP, URL}, "give --path, too"),
    Only(("tcp", "jobs"), EVERY - {URL}, "name what Clutch is to start, as MODULE:NAME, or leave it out"),
    Only(("message",), {TCP}, "give --tcp, too"),
    Only(("store",), {JOBS}, "give --jobs, too"),
    Only(("pid",), {URL}, "name the server by its URL, such as http://localhost:8000"),
    Only(
        ("callers", "rate", "poisson"), EVERY - {JOBS}, "they are a backlog, drained as fast as it can be; leave it out"
    ),
    Only(("profile", "workers", "threads", "tasks"), EVERY - {URL}, "it keeps its own setting; leave it out"),
    Only(("beside",), {CALLS, APP, TCP, JOBS}, "name what Clutch is to start; `--against` takes saved figures"),
    Only(("recycling",), {CALLS}, "only a pool of calls is recycled under load; leave it out"),
    Only(("scale",), {PRESET}, "it is the size of a preset; leave it out"),
)


def kind_of(is_url: bool, is_http: bool, is_tcp: bool, is_jobs: bool) -> Kind:
    """Raises UsageError."""
    if is_http + is_tcp + is_jobs > 1:
        raise click.UsageError("--path (or --requests), --tcp and --jobs exclude each other")
    if is_url:
        return URL
    chosen = {APP: is_http, TCP: is_tcp, JOBS: is_jobs}
    return next((kind for kind, is_chosen in chosen.items() if is_chosen), CALLS)


def refuse_others(target: str, kind: Kind, measured: Set[Kind], command: str) -> None:
    """Raises UsageError for work that another command measures."""
    if kind not in measured:
        raise click.UsageError(f"{target}: `clutch {command}` does not measure {kind.value}; `clutch bench` does")


def refuse_idle(context: click.Context, kind: Kind) -> None:
    """Raises UsageError, with all options that were typed and have no effect on this kind of work."""
    idle = [(one.options, one.instead) for one in OPTIONS if kind not in one.kinds]
    if kind is PRESET:
        others = tuple(one.name for one in context.command.params if one.name and one.name not in OF_PRESETS)
        idle = [(others, "it has its own; leave it out, or take --scale, --html or --json")]
    found = [(typed(context, options), instead) for options, instead in idle]
    if said := [no_effect(flags, kind.value, instead) for flags, instead in found if flags]:
        raise click.UsageError("\n".join(said))


def no_effect(flags: list[str], what: str, instead: str) -> str:
    return f"{', '.join(flags)} {'has' if len(flags) == 1 else 'have'} no effect on {what}: {instead}"


def typed(context: click.Context, names: tuple[str, ...]) -> list[str]:
    """The flags of options that were given on the command line."""
    options = {one.name: one for one in context.command.params if isinstance(one, click.Option)}
    return [flag_of(options[name]) for name in names if name in options and is_typed(context, name)]


def is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def flag_of(option: click.Option) -> str:
    return next((flag for flag in option.opts if flag.startswith("--")), option.opts[0])
