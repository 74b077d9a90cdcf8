"""``mainstem driver`` starts without the command-line libraries of other commands, and parses arguments identically."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import STALL_S

from mainstem import cli
from mainstem.cli import driver

PLAIN = [
    "",
    "--dir /dev/shm/x",
    "-d /dev/shm/x --threading-mode shared",
    "--threading-mode=DEDICATED --dir=/a",
    "--threading-mode Invoker",
    "--loss 0.25 --loss-seed 7",
    "--config driver.toml --print-config -v",
    "--set mtu_length=4k --set term_buffer_length=64k --verbose",
    "--set=mtu_length=4k",
    "--set nonsense",
    "--dir /a --dir /b",
]
# Arguments that the table leaves to those libraries: help, mistakes, and unknown forms.
OTHER = [
    "--help",
    "-h",
    "--color",
    "--dir",
    "--dir -x",
    "--threading-mode FAST",
    "--loss x",
    "--loss-seed 1.5",
    "--print-config=1",
    "-d/a",
    "-dv",
    "extra",
    "--",
    "--dir=",
    "--set",
]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments that ``run`` was called with."""
    calls: list[dict[str, Any]] = []

    def run(**parameters: Any) -> None:
        calls.append({name: option.default for name, option in driver.OPTIONS.items()} | parameters)

    monkeypatch.setattr(driver, "run", run)
    return calls


@pytest.mark.parametrize("line", PLAIN)
def test_plain_driver_options_are_parsed_as_typer_would(line: str, runs: list[dict[str, Any]]) -> None:
    words = line.split()
    with pytest.raises(SystemExit) as end:
        cli.main(["driver", *words])
    assert not end.value.code
    with pytest.raises(SystemExit):
        cli.build(["driver", *words])(args=["driver", *words], prog_name="mainstem")
    directly, by_typer = runs
    assert directly == by_typer


@pytest.mark.parametrize("line", OTHER)
def test_other_driver_options_are_left_to_typer(line: str) -> None:
    assert driver.read(line.split()) is None


def test_the_table_has_every_parameter_and_default() -> None:
    parameters = inspect.signature(driver.run).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        name: option.default for name, option in driver.OPTIONS.items()
    }
    assert driver.read(["--threading-mode", "shared_network"]) == {"threading_mode": "SHARED_NETWORK"}


# Importing each takes a few milliseconds, and a driver that runs in threads of its process needs none of them.
UNNEEDED = {
    "ast",
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "datetime",
    "difflib",
    "importlib.metadata",
    "inspect",
    "json",
    "pathlib",
    "platform",
    "pydantic",
    "pyarrow",
    "rich",
    "shutil",
    "ssl",
    "subprocess",
    "tempfile",
    "tomllib",
    "typer",
    "urllib.parse",
    "uuid",
    "mainstem.aeron.client",
    "mainstem.aeron.tools",
    "mainstem.aeron.driver.event_log.log",
    "mainstem.aeron.driver.naming.driver_name_resolver",
    "mainstem.aeron.driver.process",
    "mainstem.recording",
}
# How many Mainstem modules a start may load. Finding, opening and running each takes a third of a millisecond.
MOST_MODULES = 146
# What Python's own modules load is not counted: since 3.14, both of these load others of the list.
OF_PYTHON = """
import logging, sys, typing
class Pair(typing.NamedTuple):
    key: str
print(*sys.modules)
"""
PROGRAM = """
import sys
sys.argv = ["mainstem", "driver", "--dir", sys.argv[1]]
import mainstem.cli
from mainstem.cli import driver
launched = []
class Launched:
    @classmethod
    def launch(cls, directory, *, settings, threads):
        driver = RealDriver.launch(directory, settings=settings, threads=threads)
        launched[:] = sorted(sys.modules)
        driver.close()
        raise SystemExit
RealDriver, driver.MediaDriver = driver.MediaDriver, Launched
try:
    mainstem.cli.main()
finally:
    print("\\n".join(launched))
"""


def test_starting_a_driver_imports_only_what_it_needs(tmp_path: Path) -> None:
    # -S and -I skip modules that an environment's site packages load at startup.
    program = f"import sys; sys.path[:0] = {[str(Path(cli.__file__).parents[2])]!r}\n{PROGRAM}"
    loaded, of_python = (
        set(subprocess.check_output([sys.executable, "-I", "-S", "-c", *words], text=True, timeout=STALL_S).split())
        for words in ([program, str(tmp_path / "driver")], [OF_PYTHON])
    )
    assert "mainstem.aeron.driver.driver_core" in loaded
    assert (loaded - of_python) & UNNEEDED == set()
    own = {name for name in loaded if name.startswith("mainstem")}
    assert len(own) <= MOST_MODULES, len(own)
