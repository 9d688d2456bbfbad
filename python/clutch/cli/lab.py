"""What the commands of the lab have in common: the work that is measured, and figures in words."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from clutch.cli.call import named_value
from clutch.config.values import DURATION
from clutch.lab.trial import Figures, Work

Command = TypeVar("Command", bound=Callable[..., Any])


def work_arguments(command: Command) -> Command:
    """`target` and `arguments`, of which `work_of` makes the work."""
    arguments = click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
    return click.argument("target", metavar="MODULE:FUNCTION")(arguments(command))


def work_of(target: str, arguments: tuple[str, ...]) -> Work:
    """Raises UsageError."""
    module, colon, name = target.partition(":")
    if not module or not colon or not name or module.endswith(".py"):
        near = f"; a module is named as in `import`: {module.removesuffix('.py')}:FUNCTION" if ".py" in module else ""
        raise click.UsageError(f"{target!r} is not MODULE:FUNCTION, such as tools:resize{near}")
    return Work(module, name, kwargs=dict(map(named_value, arguments)))


def seconds_of(text: str, option: str) -> float:
    """Raises UsageError."""
    try:
        return float(DURATION.parse(text))
    except ValueError:
        raise click.UsageError(f"{option} is {text!r}; allowed: {DURATION.allowed}") from None


def tell(line: str) -> None:
    """Progress goes to stderr, results to stdout."""
    click.echo(line, err=True)


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:,.2f}"


def row_of(name: str, figures: Figures) -> tuple[str, ...]:
    """The cells of HEADINGS."""
    latency = [milliseconds(figures.latency_s.get(percentile)) for percentile in ("50", "99")]
    errors = sum(figures.errors.values())
    return (
        name,
        f"{figures.rate:,.1f}",
        *latency,
        f"{figures.cpu_each_s * 1e6:,.0f}",
        f"{figures.cpu_share:.2f}",
        f"{figures.pss_bytes / 1e6:,.0f}",
        f"{errors}" if errors else "",
    )


HEADINGS = ("setting", "calls/s", "p50 ms", "p99 ms", "CPU µs each", "CPUs", "MB", "errors")


def machine() -> str:
    """The machine in one line."""
    version = ".".join(map(str, sys.version_info[:3])) + ("t" if "t" in getattr(sys, "abiflags", "") else "")
    return f"{len(os.sched_getaffinity(0))} CPUs, Linux {os.uname().release}, CPython {version}"
