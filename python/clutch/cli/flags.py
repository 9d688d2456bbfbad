"""Flags that several commands share, and those made from the table of a pool's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import click

from clutch.config.options import POOL, Option

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON rather than text for people.")


def log_flags(command: Command) -> Command:
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Lowest level to log.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of the log on stderr.",
    )
    return form(level(command))


SHORT = {"workers": ("-w",)}
"""As of `clutch serve`."""


def pool_flags(command: Command, docs: Mapping[str, str] = MappingProxyType({})) -> Command:
    """`--profile`, `--workers`, `--queue-limit` …: every option of a pool but `target`.

    `docs`: of some options by their names, what they mean to this command; empty: nothing, and they are not shown.
    """
    for option in reversed(_flagged()):
        default = option.default_text or option.default
        doc = docs.get(option.name, option.doc)
        flag = click.option(
            *(*SHORT.get(option.name, ()), _flag(option), _parameter(option)),
            metavar="VALUE",
            help=f"{doc} [default: {default}]",
            hidden=not doc,
        )
        command = flag(command)
    return command


def pool_options(parameters: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the flags of `pool_flags` as keyword arguments of `config.resolve`."""
    given = {option.name: (option, parameters[_parameter(option)]) for option in _flagged()}
    return {name: option.kind.read_text(text) for name, (option, text) in given.items() if text is not None}


def pool_sources(pool: str) -> dict[str, str]:
    """By the places of its options, the flags that set them."""
    return {f"pools.{pool}.{option.name}": _flag(option) for option in _flagged()}


def _flagged() -> list[Option]:
    return [option for option in POOL.options if option.name != "target"]


def _flag(option: Option) -> str:
    return "--" + option.name.replace(".", "-").replace("_", "-")


def _parameter(option: Option) -> str:
    return "pool_" + option.name.replace(".", "_")
