"""The table of implemented features is complete, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from mainstem.aeron.channel import KEYS
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.command.commands import CommandType
from mainstem.aeron.command.responses import ResponseType
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.sim.scenarios import SCENARIOS

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs/conformance.md").read_text().partition("\n`tests/interop` carries")[0]
NOT_AERON = {"aqueduct", "archive", "bymux", "duologue", "jmux", "power_loss", "recorders"}
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_parameter_and_every_command_and_answer_has_its_row() -> None:
    named = {cells.split("|")[1].strip().strip("`") for cells in ROWS}
    wanted = {*KEYS, *CommandType.__members__, *ResponseType.__members__}
    assert sorted(wanted - named) == []


SETTINGS = {kind.env_name(name) for kind in (ClientSettings, DriverSettings) for name in kind.declared()}


def section(page: str, heading: str) -> str:
    """Return a section of a page, without its heading."""
    return (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def check_settings(patterns: list[str]) -> None:
    """Check that each setting matches a pattern, such as ``AERON_DIR*``, and each pattern a setting."""
    assert sorted(name for name in SETTINGS if not any(fnmatchcase(name, each) for each in patterns)) == []
    assert [each for each in patterns if not any(fnmatchcase(name, each) for name in SETTINGS)] == []


def test_every_setting_of_driver_and_client_has_its_row() -> None:
    lines = section("docs/conformance.md", "Settings of driver and client").splitlines()
    cells = [line.split("|")[2] for line in lines if line.startswith("| ")]
    check_settings([f"AERON_{each}" for cell in cells for each in re.findall(r"`([A-Z_*]+)`", cell)])


def test_every_setting_of_driver_and_client_is_on_the_page_of_the_protocol() -> None:
    lists = section("docs/protocols/aeron.md", "24. Settings").partition("**Numbers outside")[0]
    check_settings(re.findall(r"\bAERON_[A-Z_*]+", lists))


def test_every_row_names_a_test_that_is_there() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
        if not (ROOT / path).exists() or name not in functions_in(path)
    ]
    assert missing == []
    headings = ("| section |", "| feature |", "| parameter |", "| group |", "| command or response |")
    silent = [row for row in ROWS if "::test_" not in row and "scenario `" not in row and not row.startswith(headings)]
    assert silent == []


def test_every_scenario_that_is_named_is_there_and_none_is_left_out() -> None:
    named = set(re.findall(r"scenario `(\w+)`", TABLE))
    assert named <= set(SCENARIOS)
    assert sorted(set(SCENARIOS) - named - NOT_AERON) == []


def test_the_index_links_every_page() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (docs / "index.md").read_text()))
    assert sorted({page.name for page in docs.glob("*.md")} - linked - {"index.md"}) == []
    assert sorted(linked - {page.name for page in docs.glob("*.md")}) == []
