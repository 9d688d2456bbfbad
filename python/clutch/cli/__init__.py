"""The `clutch` command: one file for each subcommand; those for a running dispatcher are in remote.py.

Errors go to stderr, results to stdout. The exit codes are the same for all, and are in docs/operating.md too.
"""

from __future__ import annotations

from typing import Any

import click

from clutch.cli import call, doctor, init, remote, run, serve
from clutch.errors import ClutchError, ConfigError

EXIT_CODES = {
    "0": "done; of `clutch run` and `serve`: stopped in order",
    "1": "the work failed, or nobody is there to do it; of those: it could not serve, or the stop failed",
    "2": "wrong usage or configuration, or a target that does not import",
    "128 + n": "of those: a second signal with number n cut the stop short (130 for Ctrl-C, 143 for TERM)",
}


class WrongConfig(click.ClickException):
    exit_code = 2


class Commands(click.Group):
    """A group in which an error of Clutch is a message and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ClutchError as error:
            kind = WrongConfig if isinstance(error, ConfigError) else click.ClickException
            raise kind(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clutch")
def commands() -> None:
    """Runs Python code in pools of process, thread, async and greenlet workers."""


for command in (run.command, serve.command, *remote.COMMANDS, call.command, doctor.command, init.command):
    commands.add_command(command)


def main() -> None:
    commands(prog_name="clutch")
