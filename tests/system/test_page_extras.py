"""The first example on each page runs with only the extras that the page names before it installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from tests.support.doc_runner import ROOT, Block, Reader, blocks

from mainstem.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system, pytest.mark.long]

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRA = re.compile(r"(?:mainstem|\.)\[([a-z,-]+)\]")
DISTRIBUTIONS = {"google": "protobuf", "opentelemetry": "opentelemetry-api"}  # for modules named differently
HIDE = """
import os, sys

HIDDEN = set(os.environ["HIDDEN_MODULES"].split(","))


class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NotInstalled())
"""


def first_example(page: Path) -> Block | None:
    """Return the first block that runs and ends. Files and background processes before it belong to it."""
    runs = (block for block in blocks(page.read_text()) if block.language in ("python", "sh") and not block.title)
    return next((block for block in runs if not block.how.startswith(("no;", "background "))), None)


PAGES = sorted(page for page in DOCS.rglob("*.md") if first_example(page))


def installed_by(extras: list[str]) -> set[str]:
    """Return the distributions that these extras install, directly or as dependencies."""
    waiting = [Requirement(text) for extra in extras for text in PROJECT["optional-dependencies"][extra]]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower()
        if name == PROJECT["name"]:
            waiting += [
                Requirement(text) for extra in requirement.extras for text in PROJECT["optional-dependencies"][extra]
            ]
        elif name not in found:
            found.add(name)
            try:
                texts = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            required = map(Requirement, texts)
            chosen = ({"extra": extra} for extra in ("", *requirement.extras))
            environments = [*chosen]
            waiting += [
                each
                for each in required
                if each.marker is None or any(each.marker.evaluate(environment) for environment in environments)
            ]
    return found


def hidden_modules(extras: list[str]) -> set[str]:
    present = installed_by(extras)
    return {module for module in MissingExtraError.EXTRAS if DISTRIBUTIONS.get(module, module) not in present}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def test_an_extra_installs_what_it_requires_and_hides_the_rest() -> None:
    assert {"pyarrow", "deltalake", "obstore", "pydantic"} <= installed_by(["lakehouse"])
    assert {"pyspark", "aioquic"} <= hidden_modules(["lakehouse"])
    assert hidden_modules([]) == set(MissingExtraError.EXTRAS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_first_example_runs_with_the_extras_that_the_page_names(page: Path, reader: Reader, tmp_path: Path) -> None:
    text = page.read_text()
    example = first_example(page)
    assert example is not None
    start = text.index(example.code)
    before, all_named = EXTRA.findall(text[:start]), EXTRA.findall(text)
    extras = (before[-1:] or all_named[:1] or [""])[0]
    directory = tmp_path / "hidden"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(HIDE)
    reader.environment["HIDDEN_MODULES"] = ",".join(hidden_modules(extras.split(",") if extras else []))
    reader.environment["PYTHONPATH"] = f"{directory}{os.pathsep}{reader.environment['PYTHONPATH']}"
    reader.read(text[: start + len(example.code)] + "```\n")
