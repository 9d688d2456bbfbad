"""The `clutch` command: one file for each subcommand; those for a running dispatcher are in remote.py.

Errors go to stderr, results to stdout. The exit codes are the same for all, and are in docs/operating.md too.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from clutch.errors import ClutchError, ConfigError

COMMANDS = {
    "run": "run:command",
    "serve": "serve:command",
    "work": "work:command",
    "jobs": "jobs:command",
    "ps": "remote:ps",
    "top": "top:command",
    "advise": "advise:command",
    **{name: f"remote:{name}" for name in ("drain", "scale", "reload", "recycle", "cancel", "stop", "stack")},
    "profile": "profile:command",
    "bench": "bench:command",
    "compare": "compare:command",
    "tune": "tune:command",
    "call": "call:command",
    "tools": "tools:command",
    "doctor": "doctor:command",
    "init": "init:command",
    "completion": "completion:command",
}
"""Modules of the commands. Only the used one is imported: a server that runs for months does not carry the others."""

KNOWN_ELSEWHERE = {
    "start": "run, or serve APP",
    "status": "ps",
    "list": "ps",
    "workers": "ps, or top",
    "restart": "reload",
    "shutdown": "stop",
    "quit": "stop",
    "kill": "recycle POOL/NR --kill",
    "dump": "stack",
    "logs": "top, which shows events; the log is on the server's standard error",
    "worker": "work MODULE --store URL, or for a Celery app: clutch work MODULE",
    "celery": "work MODULE",
    "beat": "work MODULE, which runs its own schedules; those of a Celery app are run by `celery beat`",
    "inspect": "ps, or stack; nodes of a Celery app answer `celery inspect`",
    "queues": "jobs stats",
    "purge": "jobs delete",
    "check": "run --check",
    "config": "run --check",
    "version": "--version",
}
"""Commands of other tools, and ours for the same purpose."""

EXIT_CODES = {
    "0": "success; for `clutch run` and `serve`: graceful shutdown",
    "1": "the call failed, or no server answered; for `run` and `serve`: startup or shutdown failed",
    "2": "wrong usage or configuration, or a target that does not import",
    "3": "`bench --against` or `--beside`: a setting is worse than in the saved file, or than the other target",
    "4": "the same: other programs used the CPUs, so that there is no verdict",
    "128 + n": "`run` and `serve`: a second signal, of number n, forced the shutdown (130: Ctrl-C, 143: SIGTERM); "
    "130: `bench`, `tune` or `compare` was interrupted before there was anything to show",
}


class WrongConfig(click.ClickException):
    exit_code = 2


class Commands(click.Group):
    """A group in which an error of Clutch is a message and an exit code, never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(importlib.import_module(f"clutch.cli.{module}"), name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and (args[0] in ("celery", "worker") or args[0].startswith(("-A", "--app"))):
            from clutch.cli import celery_line

            line = celery_line.whole_line(args)
            if line is not None:
                ctx.fail(line)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from clutch.config.layers import nearest

            is_app = ":" in name or name.endswith(".py")
            near = (
                f"serve {name.replace('.py', '')}" if is_app else KNOWN_ELSEWHERE.get(name) or nearest(name, COMMANDS)
            )
            hint = f"; did you mean: clutch {near}" if near else f"; commands: {', '.join(COMMANDS)}"
            ctx.fail(f"no command '{name}'{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            # What `--help` does not show is there for the files and habits of other programs, and nobody means it.
            shown = () if error.ctx is None else error.ctx.command.get_params(error.ctx)
            flags = {flag for one in shown if not getattr(one, "hidden", False) for flag in one.opts}
            meant = [flag for flag in error.possibilities or () if flag in flags]
            raise click.NoSuchOption(error.option_name, error.message, meant, error.ctx) from None
        except ClutchError as error:
            kind = WrongConfig if isinstance(error, ConfigError) else click.ClickException
            raise kind(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="clutch")
def program() -> None:
    """Runs Python code in pools of process, thread, async and greenlet workers."""


def main() -> None:
    program(prog_name="clutch")
