"""One vocabulary: an option has one name, one meaning, one kind of value and one short letter in every command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from tests.support.case_selection import long_after
from tests.support.command_tree import COMMANDS

from mainstem import cli
from mainstem.cli._options import help_rows, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Options with a fixed set of values, which differ by command.
CHOICES = {"--format", "--output", "--input"}


def options() -> Iterator[tuple[str, Any]]:
    """Yield each option of each command, including hidden ones, with the command's name."""
    for words, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                yield words, parameter


def long_name(parameter: Any) -> str:
    return next(name for name in parameter.opts if name.startswith("--"))


NAMES = sorted({long_name(parameter) for _, parameter in options()})


@pytest.mark.parametrize("name", NAMES)
def test_an_option_means_the_same_in_every_command(name: str) -> None:
    meanings: dict[Any, list[str]] = {}
    for words, parameter in options():
        if long_name(parameter) == name:
            kind = "words" if name in CHOICES else parameter.metavar
            names = (tuple(sorted(parameter.opts)), tuple(parameter.secondary_opts))
            meanings.setdefault((names, kind, bool(parameter.is_flag), parameter.help), []).append(words)
    assert len(meanings) == 1, meanings


def test_a_meaning_has_one_option() -> None:
    names: dict[str, set[str]] = {}
    for _, parameter in options():
        if not parameter.hidden:
            names.setdefault(parameter.help, set()).add(long_name(parameter))
    assert {meaning: each for meaning, each in names.items() if len(each) > 1} == {}


def test_a_short_letter_has_one_meaning() -> None:
    meanings: dict[str, set[str]] = {}
    for _, parameter in options():
        for short in parameter.opts:
            if not short.startswith("--"):
                meanings.setdefault(short, set()).add(long_name(parameter))
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}


def test_an_option_has_one_long_name() -> None:
    assert {
        words: parameter.opts
        for words, parameter in options()
        if sum(name.startswith("--") for name in parameter.opts) != 1
    } == {}


def test_a_value_is_described_and_every_option_has_a_help_text() -> None:
    for words, parameter in options():
        if not parameter.hidden:
            assert parameter.help, (words, parameter.name)
            assert parameter.help[-1] in ".:", (words, parameter.help)


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("columns", long_after(2, [60, 80, 120, 200]))
def test_help_fits_the_terminal(
    words: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as end:
        cli.main([*words.split(), "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    body, _, examples = text.partition("\nExamples:\n")
    names = {name for row in help_rows(COMMANDS[words]) for name in row.names}
    assert max(len(line) for line in body.splitlines() if line.strip() not in names) <= columns
    for name in names:  # each name is complete, on one line
        assert name in text
    meanings = " ".join(f"{row.meaning} {row.default}" for row in help_rows(COMMANDS[words]))
    assert {word for word in meanings.split() if word not in body} == set()
    assert not re.search(r"…|<\w+( range)?>|<=", body)
    for example in re.findall(r"Example: (.*)", COMMANDS[words].help or ""):
        assert f"  {example}\n" in examples


def test_the_main_help_shows_first_lines_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, line in cli.commands().items():
        assert f"{name} {line}" in text


def test_a_usage_error_shows_how_the_command_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["pub", "aeron:ipc", "1", "--size", "12q"])
    assert end.value.code == cli.EXIT_USAGE
    assert capsys.readouterr().err.startswith("Usage: mainstem pub [OPTIONS] CHANNEL [STREAM]\n")


def test_examples_quote_values_that_a_shell_would_expand() -> None:
    for command in COMMANDS.values():
        texts = [command.help or "", *(getattr(each, "help", "") or "" for each in command.params)]
        for text in texts:
            unquoted = re.sub(r"(?<!\w)'[^']*'|`[^`]*`", "", text)
            assert not re.search(r"\w[?\[]\w", unquoted), text


def test_options_of_another_command_are_built_from_its_declaration() -> None:
    words = words_of(
        "ship", flush_interval=2.5, local_retention="", store_option=["a=b", "c=d"], once=True, verify=False
    )
    assert words == ["--flush-interval", "2.5", "--store-option", "a=b", "--store-option", "c=d", "--once"]
    with pytest.raises(KeyError):
        words_of("ship", roll_after=2.5)
    command: Any = typer.main.get_command(cli.build(["ship"])).commands["ship"]  # type: ignore[attr-defined]
    parsed = command.make_context("ship", [*words, "tides", "s3://bucket/tides"]).params
    assert (parsed["flush_interval"], parsed["store_option"], parsed["once"]) == (2.5, ["a=b", "c=d"], True)
