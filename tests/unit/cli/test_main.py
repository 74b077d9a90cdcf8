from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mainstem import cli
from mainstem.errors import RecordingError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mainstem", *arguments], capture_output=True, text=True, check=False)


def test_the_help_names_every_command_without_importing_one() -> None:
    code = (
        "import sys, mainstem.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "modules = {m for m in sys.modules if m.startswith(('mainstem.cli.', 'mainstem.aeron', 'pyspark', 'pyarrow'))}\n"
        "print(sorted(modules - {'mainstem.cli._options', 'mainstem.cli._process'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    for name, line in cli.commands().items():
        assert name in done.stdout
        assert line
    files = {path.stem.replace("_", "-") for path in Path(cli.__file__).parent.glob("[a-z]*.py")}
    assert set(cli.commands()) == files, "cli.PANELS lists every command"
    assert all(f"{panel}:" in done.stdout for panel in cli.PANELS)


@pytest.mark.parametrize("name", ["driver", "archive"])
def test_a_command_after_the_option_help_stays_in_its_group(name: str) -> None:
    assert "\nCommands:" not in run("--help", name).stdout


def test_the_version_is_one_line() -> None:
    done = run("--version")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert done.stdout.startswith("mainstem ")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = run("color")
    assert done.returncode == cli.EXIT_USAGE
    assert "No such command 'color'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("word", "meant"), [("subscribe", "sub"), ("ls", "streams"), ("version", "--version")])
def test_a_word_of_other_tools_gets_the_command_that_does_it(word: str, meant: str) -> None:
    done = run(word)
    assert done.returncode == cli.EXIT_USAGE
    assert f"No such command {word!r}. Did you mean {meant!r}?" in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(RecordingError("the disk is full"), 1, "mainstem: the disk is full\n"), (KeyboardInterrupt(), 130, "")],
)
def test_errors_are_one_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def build(_arguments: object) -> object:
        def application(**_: object) -> None:
            raise error

        return application

    monkeypatch.setattr(cli, "build", build)
    with pytest.raises(SystemExit) as end:
        cli.main(["demo"])
    assert end.value.code == code
    assert capsys.readouterr().err == said
