"""`clutch completion`: the script by which a shell completes commands and flags. Click writes it, and answers it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_CLUTCH_COMPLETE"
"""By which the script asks; `clutch` answers to this name by itself."""


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: commands, flags, and flag values with fixed choices.

    Names of pools and ids of calls are not completed.

    \b
    bash: eval "$(clutch completion bash)"     in ~/.bashrc
    zsh:  eval "$(clutch completion zsh)"      in ~/.zshrc, after compinit
    fish: clutch completion fish > ~/.config/fish/completions/clutch.fish
    """
    made_for = get_completion_class(shell)
    assert made_for is not None, f"click knows no {shell}"
    click.echo(made_for(context.find_root().command, {}, "clutch", VARIABLE).source())
