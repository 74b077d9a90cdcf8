"""The commands of the command line, as typer knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer.main

from mainstem import cli

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command, including subcommands, with the words that name it."""
    for name in cli.commands():
        group: Any = typer.main.get_command(cli.build([name]))
        command = group.commands[name]
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {each}", each_command) for each, each_command in below.items())


COMMANDS = dict(commands())
