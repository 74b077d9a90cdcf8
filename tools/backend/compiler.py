"""The C compiler for a build (the system's, or else the one in the ziglang wheel) and Python's header files."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

ZIG = "ziglang>=0.13"
NO_HEADERS = "Python's header files are missing, and Mainstem is compiled: on Debian, apt-get install python3-dev."
NO_COMPILER = "there is no C compiler: install one (on Debian: apt-get install gcc libc6-dev), or pip install ziglang."


def is_installed() -> bool:
    """Whether the system has a C compiler, or ``CC`` names one."""
    return bool(os.environ.get("CC")) or any(shutil.which(name) for name in _names())


def needs_headers() -> bool:
    """Whether the header files of this Python are missing."""
    return not any(Path(sysconfig.get_path(name), "Python.h").exists() for name in ("include", "platinclude"))


def environment(python: Path | str = sys.executable) -> dict[str, str]:
    """Return the environment variables that setuptools needs to find a compiler.

    Args:
        python: The interpreter that has the ziglang wheel.

    Returns:
        An empty dict if the compiler that Python was built with exists, or ``CC`` is set.

    Example:
        >>> os.environ.update(environment())
    """
    if os.environ.get("CC"):
        return {}
    built_with, *others = _names()
    if shutil.which(built_with):
        return {}
    found = next((name for name in others if shutil.which(name)), None) or f"{python} -m ziglang cc"
    return {"CC": found, "LDSHARED": f"{found} {'-bundle -undefined dynamic_lookup' if _is_mac() else '-shared'}"}


def choose() -> str:
    """Make setuptools use an existing compiler. Return a message about the choice, or an empty string.

    Raises:
        SystemExit: There is no compiler, or Python's header files are missing.
    """
    if needs_headers():
        sys.exit(f"mainstem: {NO_HEADERS}")
    if is_installed():
        os.environ.update(environment())
        return ""
    if importlib.util.find_spec("ziglang") is None:
        sys.exit(f"mainstem: {NO_COMPILER}")
    os.environ.update(environment())
    return "no C compiler found: using the one in the ziglang wheel"


def _names() -> list[str]:
    """Return the compiler that Python was built with, and equivalent ones."""
    words = (sysconfig.get_config_var("CC") or "cc").split()
    return [words[0], "cc", "gcc", "clang"]


def _is_mac() -> bool:
    return sys.platform == "darwin"
