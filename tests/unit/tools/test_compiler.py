"""Which C compiler a build uses."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BACKEND = Path(__file__).resolve().parents[3] / "tools" / "backend"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, on a system without a compiler and with CC unset."""
    monkeypatch.syspath_prepend(str(BACKEND))
    monkeypatch.delitem(sys.modules, "compiler", raising=False)
    module = importlib.import_module("compiler")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    return module


def test_without_a_compiler_the_ziglang_wheel_is_used(compiler: ModuleType) -> None:
    assert not compiler.is_installed()
    taken = compiler.environment("/opt/python")
    assert taken["CC"] == "/opt/python -m ziglang cc"
    assert taken["LDSHARED"].startswith("/opt/python -m ziglang cc -")


def test_the_backend_asks_for_the_ziglang_wheel_only_then(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mainstem_backend", raising=False)
    backend = importlib.import_module("mainstem_backend")
    monkeypatch.setattr(backend.build_meta, "get_requires_for_build_wheel", lambda settings: ["wheel"])
    assert backend.get_requires_for_build_wheel() == ["wheel", compiler.ZIG]
    monkeypatch.setenv("CC", "gcc")
    assert backend.get_requires_for_build_wheel() == ["wheel"]


def test_the_group_that_compiles_for_other_systems_asks_for_the_same_wheel(compiler: ModuleType) -> None:
    project = tomllib.loads((BACKEND.parents[1] / "pyproject.toml").read_text())
    assert project["dependency-groups"]["cross"] == [compiler.ZIG]


def test_a_compiler_other_than_pythons_own_is_used(compiler: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda name: "/usr/bin/clang" if name == "clang" else None)
    monkeypatch.setattr(compiler.sysconfig, "get_config_var", lambda name: "somecc -pthread")
    assert compiler.environment()["CC"] == "clang"


@pytest.mark.parametrize(("headers", "sentence"), [(True, "no C compiler"), (False, "header files")])
def test_missing_requirements_are_reported_in_one_sentence(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch, headers: bool, sentence: str
) -> None:
    monkeypatch.setattr(compiler, "needs_headers", lambda: not headers)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=rf"^mainstem: .*{sentence}[^\n]*$"):
        compiler.choose()
