"""The help: every command has examples, and they are valid command lines."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from tests.support.command_tree import COMMANDS
from tests.support.waiting import STALL_S

from mainstem import cli


@pytest.mark.parametrize("words", COMMANDS)
def test_the_examples_of_every_command_are_valid(words: str) -> None:
    command = COMMANDS[words]
    examples = re.findall(r"Example: (.*)", command.help or "")
    assert examples, f"the help of mainstem {words} has no example"
    for example in examples:
        tail = re.search(rf"mainstem {words}( [^|>)]*)?", example)
        assert tail, f"{example} is not an example of mainstem {words}"
        arguments = shlex.split((tail[1] or "").strip('" '))
        command.make_context(words, arguments)  # parses without running anything; exits if the arguments are invalid


@pytest.mark.parametrize(
    ("shell", "environment", "suggestions"),
    [
        ("bash", {"COMP_WORDS": "mainstem back", "COMP_CWORD": "1"}, ["backlog"]),
        ("bash", {"COMP_WORDS": "mainstem streams --wa", "COMP_CWORD": "2"}, ["--watch"]),
        ("bash", {"COMP_WORDS": "mainstem completion ", "COMP_CWORD": "2"}, ["bash", "zsh", "fish"]),
        ("bash", {"COMP_WORDS": "mainstem config ex", "COMP_CWORD": "2"}, ["explain"]),
        ("bash", {"COMP_WORDS": "mainstem sub 'aeron", "COMP_CWORD": "2"}, []),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "mainstem doct"}, ["doctor"]),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "mainstem why --sam", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            ["--samples"],
        ),
    ],
)
def test_a_shell_completes_commands_and_options(
    shell: str, environment: dict[str, str], suggestions: list[str]
) -> None:
    environ = os.environ | environment | {cli.COMPLETION_VARIABLE: f"complete_{shell}"}
    command = [sys.executable, "-m", "mainstem"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert done.stderr == ""
    if shell == "bash":
        assert done.stdout.split() == suggestions
    for each in suggestions:
        assert each in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_names_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["completion", shell])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "mainstem" in text
    assert f"complete_{shell}" in text
