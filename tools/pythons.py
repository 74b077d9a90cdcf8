"""The Pythons of this machine with which Mainstem can be built, one for each minor version that it supports, the oldest first.

    python tools/pythons.py    print the version and path of each on a line

They are looked for on PATH, then among those of pyenv and uv. Of two with the same minor version, the first on PATH counts, and
of those that are not on PATH the newest. A Python without header files or without venv cannot build Mainstem, and is not listed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
PROBE = """
import importlib.util, json, os, sys, sysconfig
print(json.dumps({
    "path": getattr(sys, "_base_executable", None) or sys.executable,
    "version": sys.version_info[:3],
    "final": sys.version_info.releaselevel == "final",
    "has": sys.implementation.name == "cpython"
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
    and all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
    and any(os.path.exists(os.path.join(sysconfig.get_path(name), "Python.h")) for name in ("include", "platinclude")),
}))
"""


def supported(project: str) -> list[int]:
    """Return the minor versions that the classifiers of pyproject.toml name."""
    return sorted(int(minor) for minor in re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', project))


def candidates(minors: Iterable[int], path: str, homes: Sequence[Path]) -> Iterator[Path]:
    """Yield programs that may be a supported Python: those on PATH, then those below the homes of pyenv and uv."""
    names = ["python3", *(f"python3.{minor}" for minor in minors)]
    elsewhere = [folder for home in homes for folder in sorted(home.glob("*/bin"), key=_by_version, reverse=True)]
    for folder in (*(Path(entry) for entry in path.split(os.pathsep) if entry), *elsewhere):
        for name in names:
            if os.access(folder / name, os.X_OK):
                yield folder / name


def probe(program: Path) -> tuple[int, str] | None:
    """Return the minor version and the path of a Python that can build Mainstem; None for any other program."""
    try:
        done = subprocess.run(
            [str(program), "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # such as a shim of pyenv for a version that is not selected
    major, minor, _micro = found["version"]
    return (minor, found["path"]) if major == 3 and found["has"] and found["final"] else None


def pythons() -> dict[str, str]:
    """Return the path of each by its version, as "3.12", oldest first."""
    minors = supported((ROOT / "pyproject.toml").read_text())
    homes = [
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions",
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python"),
    ]
    found: dict[int, str] = {}
    seen: set[Path] = set()
    for program in candidates(minors, os.environ.get("PATH", ""), homes):
        resolved = program.resolve()
        if resolved not in seen:
            seen.add(resolved)
            answer = probe(program)
            if answer and answer[0] in minors:
                found.setdefault(*answer)
    return {f"3.{minor}": found[minor] for minor in sorted(found)}


def _by_version(folder: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", folder.parent.name)[:3]]


def main() -> None:
    for version, path in pythons().items():
        print(version, path)


if __name__ == "__main__":
    main()
