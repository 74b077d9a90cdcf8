"""Which Pythons of a machine `.ci/run` and `nox` use."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mainstem_pythons", ROOT / "tools" / "pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add(folder: Path, name: str, version: str, *, has: bool = True, final: bool = True) -> str:
    """Write a program that answers the probe as a Python would, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    answer = {"path": str(program), "version": [int(part) for part in version.split(".")], "final": final, "has": has}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    program.chmod(0o755)
    return str(program)


def test_one_of_each_supported_version_is_found(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, system, versions = tmp_path / "shims", tmp_path / "system", tmp_path / "pyenv" / "versions"
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (shims, system))))
    monkeypatch.setenv("PYENV_ROOT", str(versions.parent))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    shims.mkdir()
    for name in ("python3", "python3.13"):
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o755)
    first = add(system, "python3", "3.12.4")
    add(system, "python3.11", "3.11.2", has=False)
    add(system, "python3.14", "3.14.0", final=False)
    add(versions / "3.12.9" / "bin", "python3.12", "3.12.9")
    add(versions / "3.9.1" / "bin", "python3", "3.9.1")
    add(versions / "3.13.2" / "bin", "python3.13", "3.13.2")
    newest = add(versions / "3.13.10" / "bin", "python3.13", "3.13.10")
    assert tool.pythons() == {"3.12": first, "3.13": newest}


def test_a_python_that_can_build_mainstem_says_so(tool: ModuleType) -> None:
    minor, path = tool.probe(Path(sys.executable))
    assert minor == sys.version_info.minor
    assert tool.probe(Path(path)) == (minor, path)
    assert tool.probe(Path("/bin/false")) is None
