"""Arguments of jobs on the command line: how they are read, and whether they fit their tool where that can be found."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import click

from clutch._jobs.written import arguments_of, called_of
from clutch._worker.image import Image, LoadError, find_target, hint_of
from clutch.cli.call import named_value, refuse_constant
from clutch.errors import ClutchError, ConfigError
from clutch.jobs import Job
from clutch.tools import NAME, NAME_CHARACTERS_MAX


def json_arguments(text: str) -> tuple[Any, ...] | dict[str, Any]:
    """Reads arguments by position (a list) or by name (an object). Raises UsageError."""
    try:
        given = json.loads(text, parse_constant=refuse_constant)
    except ValueError:
        given = None
    if isinstance(given, list):
        return tuple(given)
    if isinstance(given, dict):
        return given
    raise click.UsageError(
        f"--args {text!r}: allowed are a JSON list of arguments by position, such as '[\"ann\", 7]', or an object of "
        """arguments by name, such as '{"to": "ann"}'"""
    )


def words(arguments: Iterable[str]) -> tuple[Any, ...] | dict[str, Any]:
    """Reads VALUEs or NAME=VALUEs. Raises UsageError for both."""
    is_named = {word: "=" in word and word.partition("=")[0].isidentifier() for word in arguments}
    if len(set(is_named.values())) > 1:
        raise click.UsageError("give arguments by position or by name, not both")
    if any(is_named.values()):
        return dict(map(named_value, arguments))
    return tuple(named_value(f"value={word}")[1] for word in arguments)


def tool_of(name: str) -> Any:
    """The name of a tool, or its function where its module is named. Raises UsageError."""
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return found_target(name)
    if NAME.fullmatch(name):
        return name
    raise click.UsageError(
        f"TOOL {name!r}: allowed is the name of a tool, such as send or mail.send (up to {NAME_CHARACTERS_MAX} "
        "letters, digits, '_', '-', '.' and '::'), or MODULE:FUNCTION, such as shop.mail:send"
    )


def found_target(target: str) -> Any:
    """Raises UsageError, whatever the import raises. What it prints goes to standard error: the answer may be JSON."""
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return find_target(target)[1]
    except LoadError as error:
        raise click.UsageError(str(error)) from None
    except (Exception, SystemExit) as error:
        raise click.UsageError(f"target {target!r} does not import: {raised_where(error)}{hint_of(error)}") from None


def raised_where(error: BaseException) -> str:
    """An error in a line, with the last place in a file where it came by."""
    told = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        return f"{told} ({error.filename}, line {error.lineno})"
    files = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f"{told} ({files[-1].filename}, line {files[-1].lineno})" if files else told


def check_arguments(job: Job, given: Any, target: str | None, by_name: bool) -> str | None:
    """Checks new arguments of a job by the tool in `target`, or in those of the nearest config.

    Returns why they are not checked. Raises BadArguments, and UsageError for a target without the tool.
    """
    if target is not None:
        tools = Image.tools(found_target(target))
        if job.tool not in tools:
            known = ", ".join(sorted(tools)) or "none: mark functions with @clutch.tool"
            raise click.UsageError(f"--target {target} has no tool {job.tool!r}; it has {known}")
    else:
        tools, problems = tools_of_config()
        if job.tool not in tools:
            found = "".join(f"{problem}; " for problem in problems)
            return (
                f"the arguments are not checked: {found}`--target MODULE`, with the tool {job.tool!r} in it, does that"
            )
    function, _ = tools[job.tool]
    called_of(function).arguments(*arguments_of(given), by_name)
    return None


def tools_of_config() -> tuple[dict[str, tuple[Any, Any]], list[str]]:
    """Tools in the targets of the nearest config, by their names, and why some cannot be imported. None without a
    config that can be read."""
    from clutch.config import load

    tools: dict[str, tuple[Any, Any]] = {}
    problems: list[str] = []
    try:
        pools = load().pools
    except ConfigError:
        return tools, problems
    for pool in pools:
        try:
            tools |= Image.tools(found_target(pool.values["target"])) if pool.values["target"] else {}
        except click.UsageError as error:
            problems.append(error.message)
        except (ClutchError, LoadError) as error:
            problems.append(str(error))
    return tools, problems
