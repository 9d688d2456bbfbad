"""The `clutch` command: one file for each subcommand.

Exit codes: 0 done · 1 the work failed · 2 wrong usage or configuration · 128 + signal when a second signal cut the
stop short. Errors go to stderr, results to stdout.
"""

from __future__ import annotations

from typing import Any

import click

from clutch.cli.call import call
from clutch.cli.doctor import doctor
from clutch.cli.init import init
from clutch.cli.run import run
from clutch.errors import ClutchError, ConfigError


class Commands(click.Group):
    """A group in which an error of Clutch is a message and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ClutchError as error:
            failure = click.ClickException(str(error))
            failure.exit_code = 2 if isinstance(error, ConfigError) else 1
            raise failure from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clutch")
def commands() -> None:
    """Runs Python code in pools of process, thread, async and greenlet workers."""


for command in (run, call, doctor, init):
    commands.add_command(command)


def main() -> None:
    commands(prog_name="clutch")
