"""Print the completion of commands and options for a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not in its __all__

from mainstem.cli import COMPLETION_VARIABLE
from mainstem.cli._options import argument


class Shell(StrEnum):
    """The shells for which there is a completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def run(shell: Annotated[Shell, argument("The shell.")]) -> None:
    """Print the completion of commands and options for a shell.

    Example: eval "$(mainstem completion bash)"

    Example: mainstem completion fish > ~/.config/fish/completions/mainstem.fish
    """
    typer.echo(get_completion_script(prog_name="mainstem", complete_var=COMPLETION_VARIABLE, shell=shell.value))
