"""Create a virtual environment with compiled Mainstem and everything that its tests and demo need (``make build``).

Safe to run again: it does nothing if nothing has changed, compiles only what has changed, and reinstalls only after an edit of
pyproject.toml. Requires Python >= 3.11 with its header files and its module venv (Debian: python3-dev, python3-venv). If there is
no C compiler, it uses the one in the ziglang wheel. A package without a wheel for this Python is left out, with a sentence about
what is missing without it (tools/dependencies.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "backend")]
import compiler  # noqa: E402 - next to the build backend, which is not installed

MINIMUM = (3, 11)
# Lines of pip's output that name a file: a package to download, or one from the cache. Metadata alone is not reported.
FILE = re.compile(
    r"(?P<how>Downloading|Using cached) (?:\S*/)?(?P<name>[^\s/]+?)-(?P<version>\d[^\s-]*?)"
    r"(?:-\S+\.whl|\.tar\.gz|\.zip)(?: \((?P<size>[^)]+)\))?$"
)


def main(venv: Path) -> None:
    if sys.version_info < MINIMUM:
        have = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            f"Mainstem needs Python {'.'.join(map(str, MINIMUM))} or newer; {sys.executable} is {have}: try make PYTHON=python3.12"
        )
    if compiler.needs_headers():
        sys.exit(compiler.NO_HEADERS)
    os.chdir(ROOT)
    python = venv / "bin" / "python"
    stamp = venv / "mainstem-installed"
    wanted = fingerprint()
    if not python.exists():
        create(venv)
    installed, _, left_out = stamp.read_text().partition("\n") if stamp.exists() else ("", "", "")
    if installed != wanted:
        left_out = "\n".join(install(python))
        stamp.write_text(f"{wanted}\n{left_out}")
    for sentence in left_out.splitlines():
        say(sentence)
    compile_core(python)


def fingerprint() -> str:
    """Return a hash that changes when the dependencies or the list of modules may have changed."""
    text = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "setup.py").read_bytes() + sys.version.encode()
    return hashlib.sha256(text).hexdigest()


def create(venv: Path) -> None:
    say(f"creating {venv}")
    try:
        run(sys.executable, "-m", "venv", str(venv))
    except subprocess.CalledProcessError:
        sys.exit("Python's venv module does not work here: install it first (on Debian: apt-get install python3-venv).")


def install(python: Path) -> list[str]:
    """Install Mainstem and its dependencies. Return a sentence for each of these that is left out."""
    import tomllib  # not at the top, because Pythons before 3.11 lack it and must get as far as the error message

    import dependencies

    say("installing Mainstem and its dependencies")
    begin = time.monotonic()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pip(python, "--upgrade", "pip>=25.1", "wheel", *project["build-system"]["requires"])
    # Compile modules in place, so that edits of .py files take effect at once and only changed modules are compiled. pip would
    # compile all of them again.
    uncompiled = {**os.environ, "MAINSTEM_COMPILE": "no"}
    left_out = install_wheels(
        python, dependencies.requirements(project), "--no-build-isolation", "--editable", ".", env=uncompiled
    )
    say(f"installed in {time.monotonic() - begin:.0f} s")
    return left_out


def install_wheels(
    python: Path, requirements: Mapping[str, str], *arguments: str, env: dict[str, str] | None = None
) -> list[str]:
    """Install what has wheels for this Python, and with it what the arguments name.

    Args:
        python: The Python of the environment.
        requirements: What to install, with what is missing without it. Empty: nothing runs without it.
        arguments: More arguments of `pip install`.
        env: The environment variables of pip.

    Returns:
        A sentence for each requirement that has no wheel.

    Raises:
        SystemExit: Nothing runs without one that has none.
        PipError: pip failed for another reason.
    """
    import dependencies

    only_wheels = ("--only-binary=:all:", f"--no-binary={','.join(dependencies.SOURCES)}")
    wanted = list(requirements)
    left_out: list[str] = []
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    while True:
        try:
            pip(python, *only_wheels, *arguments, *wanted, env=env)
            return left_out
        except PipError as error:
            without = dependencies.unmet(error.output, wanted)
            if not without and dependencies.lacks_wheel(error.output):
                say(f"a package that others require has no wheel for {version}: trying them one at a time")
                without = [each for each in wanted if not is_available(python, each, *only_wheels, env=env)]
            if not without:
                raise
        for each in without:
            why = f"there is no wheel of it, or of what it requires, for {version} on this machine"
            if not requirements[each]:
                sys.exit(
                    f"mainstem: {each} cannot be installed: {why}; use another Python, as in make PYTHON=python3.12"
                )
            left_out.append(f"left out {each}: {why}; {requirements[each]}")
            wanted.remove(each)


def is_available(python: Path, requirement: str, *arguments: str, env: dict[str, str] | None) -> bool:
    """Whether pip can install a requirement by itself.

    Raises:
        PipError: pip could not find out.
    """
    import dependencies

    try:
        pip(python, "--dry-run", "--no-build-isolation", *arguments, requirement, env=env)
    except PipError as error:
        if dependencies.lacks_wheel(error.output):
            return False
        raise
    return True


class PipError(subprocess.CalledProcessError):
    """`pip install` failed; ``output`` is all that it printed."""


def pip(python: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
    """Install packages. Report each as it is downloaded.

    Raises:
        PipError: pip failed.
    """
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *arguments]
    lines: list[str] = []
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if text := progress(line.strip()):
                say(text)
    if process.returncode:
        raise PipError(process.returncode, command, "".join(lines))


def progress(line: str) -> str:
    """Return the message for a line of pip's output; empty for most."""
    if match := FILE.fullmatch(line):
        if match["how"] == "Using cached":
            return f"taking {match['name']} {match['version']} from the cache"
        return f"fetching {match['name']} {match['version']}" + (f" ({match['size']})" if match["size"] else "")
    if line.startswith("Building wheel for") and line.endswith("started"):
        return f"building {line.split()[3]}"
    if line.startswith("Installing collected packages: "):
        return f"installing {line.count(',') + 1} packages"
    return ""


def compile_core(python: Path) -> None:
    if not compiler.is_installed() and not any(python.parents[1].glob("lib/python*/site-packages/ziglang")):
        say("no C compiler found: fetching the ziglang wheel, which has one")
        run(str(python), "-m", "pip", "install", "--quiet", compiler.ZIG)
    # Reports each module that it compiles, and uses all cores.
    run(str(python), "setup.py", "--quiet", "build_ext", "--inplace", stdout=subprocess.DEVNULL)


def say(text: str) -> None:
    print(f"mainstem: {text}", file=sys.stderr, flush=True)


def run(*command: str, env: dict[str, str] | None = None, stdout: int | None = None) -> None:
    subprocess.run(command, check=True, env=env, stdout=stdout)


def explain(error: subprocess.CalledProcessError) -> str:
    """Return what a step printed that was not shown while it ran, and the step."""
    return f"{error.output or ''}mainstem: this step failed: {' '.join(map(str, error.cmd))}"


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(explain(error))
