"""Which packages the bill of materials includes."""

from __future__ import annotations

import importlib.util
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

pytest.importorskip("packaging")
from packaging.version import Version

TOOL = Path(__file__).resolve().parents[3] / "tools" / "audit.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_materials_are_what_extras_require_directly_or_not_and_nothing_of_development(tool: ModuleType) -> None:
    materials = tool.materials()
    assert materials["pyarrow"] == version("pyarrow")
    # Required only by typer and by aiohttp.
    assert {"shellingham", "frozenlist"} <= set(materials)
    assert not {"pytest", "ruff", "mypy", "moto"} & set(materials)


def test_the_oldest_versions_are_the_lower_ends_of_our_own_ranges(tool: ModuleType) -> None:
    oldest = tool.oldest_versions()
    without_wheels = {name for name in oldest if not any(distributions(name=name))}  # for this Python
    assert set(oldest) <= set(tool.materials()) | {"mainstem"} | without_wheels
    for name in ("protobuf", "cryptography", "cbor2", "pyarrow"):
        assert Version(oldest[name]) <= Version(version(name))
    assert Version(oldest["cbor2"]) >= Version("5.9")
