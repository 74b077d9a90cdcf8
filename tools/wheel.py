"""Build the source archive and from it the wheel, repair the wheel, and test it in an environment without anything else.

The repaired wheel is installed into an empty environment outside the repository. The test checks that its modules are the
compiled ones, and runs its commands, a driver with a publication and a subscription, and the unit tests that need no other
package.

    python tools/wheel.py                    all of that: `make wheel`
    python tools/wheel.py --no-compiler      hides the system's compiler, so that the build uses the one in the ziglang wheel
    python tools/wheel.py --extras           also installs and imports each extra by itself, about 1.5 GB
    python tools/wheel.py --installed        only the tests, of the installation in this Python: for cibuildwheel
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

from backend.core_stubs import LAYOUTS, NOT_COMPILED

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Versioned files that the source archive omits.
NOT_SHIPPED = (".ci/", ".gitignore")
COMPILERS = ("cc", "gcc", "clang", "c99", "x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc")
# Tests that need only pytest and hypothesis.
TESTS = ("_core", "aeron", "mux", "test_exports.py", "_internal", "test_message_keys.py", "test_settings.py")
# Modules that import the libraries of an extra, and libraries that no Mainstem module imports when it is imported.
IMPORTS = {
    "cli": "mainstem.cli, mainstem.serve.app, mainstem.metrics.opentelemetry, typer, rich, textual",
    "tables": "mainstem._internal.arrow_batches, mainstem.analysis.program, pyarrow, numpy, polars, duckdb",
    "lakehouse": "mainstem.store, deltalake, pyiceberg",
    "stores": "mainstem.store, obstore, fsspec, urllib3",
    "spark": "mainstem.spark, pyspark, pyarrow, pandas",
    "codecs": "mainstem.codecs, fastavro, google.protobuf, msgspec",
    "quic": "mainstem.aqueduct.quic.qh3_backend, mainstem.aqueduct.quic.aioquic_backend, cryptography, msgspec, cbor2",
    "encryption": "mainstem.duologue, cryptography",
}

CHECK = """
import importlib, importlib.metadata, pathlib, sys
import mainstem
home = pathlib.Path(mainstem.__file__).parent
if not home.is_relative_to(sys.prefix):
    sys.exit(f"mainstem is imported from {home}, not from {sys.prefix}")
if importlib.metadata.version("mainstem") != mainstem.__version__:
    sys.exit("the version of the package is not that of its metadata")
modules = [path for path in (home / "_core").rglob("*.py") if path.stem not in sys.argv]
for path in modules:
    name = ".".join(("mainstem", *path.relative_to(home).with_suffix("").parts))
    if not importlib.import_module(name).__file__.endswith(".so"):
        sys.exit(f"{name} is not compiled")
print(f"{len(modules)} compiled modules of mainstem {mainstem.__version__}")
"""

STREAMS = """
import socket
import mainstem
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with mainstem.MediaDriver.launch() as driver, mainstem.Aeron.connect(driver.directory) as aeron:
    for channel in ("aeron:ipc", f"aeron:udp?endpoint=127.0.0.1:{port}"):
        subscription = aeron.add_subscription(channel, stream_id=1001)
        publication = aeron.add_publication(channel, stream_id=1001)
        for number in range(1000):
            publication.send(b"%d" % number, timeout=60.0)
        publication.close()
        received = [int(message) for message in subscription.messages(timeout=60.0)]
        if received != list(range(1000)):
            raise SystemExit(f"{channel}: {len(received)} messages arrived, of 1000")
print("1000 messages over IPC and over UDP")
"""


def say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


def run(*command: str | Path, hidden: Path | None = None, cwd: Path = ROOT) -> None:
    """Run a command in an environment without the repository. If it fails, this program fails."""
    subprocess.run([str(word) for word in command], cwd=cwd, env=environment(hidden), check=True)


def environment(hidden: Path | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if hidden is None:
        return kept
    return {name: value for name, value in kept.items() if name not in ("CC", "LDSHARED")} | {"PATH": str(hidden)}


def without_compilers(directory: Path) -> Path:
    """Return a directory for PATH, with links to all programs on PATH except C compilers."""
    directory.mkdir()
    for entry in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(entry).glob("*")) if entry else []:
            # gcc-12, x86_64-linux-gnu-gcc-12
            is_compiler = any(program.name == name or program.name.startswith(f"{name}-") for name in COMPILERS)
            if not is_compiler and not (directory / program.name).exists():
                (directory / program.name).symlink_to(program)
    return directory


def make_sdist(directory: Path) -> Path:
    """Build the source archive."""
    code = (
        "import sys; sys.path.insert(0, 'tools/backend'); import mainstem_backend as backend;"
        f"backend.build_sdist({str(directory)!r})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(None), check=True, stdout=subprocess.DEVNULL)
    [archive] = directory.glob("*.tar.gz")
    return archive


def compare(archive: Path) -> None:
    """Fail unless the archive has exactly the versioned files and the files that the build generates from them."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        say("no git repository here: what the source archive has is not compared with it")
        return
    listing = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    versioned = {
        name for name in listing.split("\0") if name and not name.startswith(NOT_SHIPPED) and (ROOT / name).exists()
    }
    sources = [Path(name) for name in versioned if name.startswith("src/mainstem/_core/") and name.endswith(".py")]
    compiled = [source for source in sources if source.stem not in NOT_COMPILED]
    layouts = [source for source in sources if source.stem in {Path(name).stem for name in LAYOUTS}]
    versioned |= {str(source.with_suffix(".pxd")) for source in (*compiled, *layouts)}
    versioned |= {str(source.with_suffix(".pyi")) for source in compiled}
    with tarfile.open(archive) as members:
        names = {member.name.partition("/")[2] for member in members if member.isfile()}
    shipped = {name for name in names if name not in ("PKG-INFO", "setup.cfg") and ".egg-info/" not in name}
    if versioned != shipped:
        missing, extra = sorted(versioned - shipped), sorted(shipped - versioned)
        sys.exit(f"wheel: MANIFEST.in: missing in the source archive: {missing}; not versioned: {extra}")
    say(f"{archive.name} has all {len(shipped)} files that are versioned, and the declarations that the build writes")


def repair(wheel: Path, directory: Path) -> Path:
    """Let auditwheel determine the systems that the wheel runs on, and add them to its tag."""
    if not sys.platform.startswith("linux"):
        say(f"auditwheel repairs wheels for Linux only: {wheel.name} is tested as it is")
        return wheel
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", directory, wheel],
        env=environment(None) | {"PATH": tools},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [repaired] = directory.glob("*.whl")
    say(f"repaired: {repaired.name}, {repaired.stat().st_size / 1e6:.1f} MB")
    return repaired


def empty_environment(directory: Path) -> Path:
    """Create a virtual environment. Return its Python."""
    subprocess.run([sys.executable, "-m", "venv", directory], env=environment(None), check=True)
    return directory / "bin" / "python"


def install(python: Path, *packages: str) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, cwd=python.parent)


def check_command(python: Path, wheel: Path) -> None:
    """Check that the command names its extra if the extra is missing, and works with it."""
    command = python.parent / "mainstem"
    bare = subprocess.run([command, "--help"], env=environment(None), capture_output=True, text=True, check=False)
    if bare.returncode == 0 or "mainstem[cli]" not in bare.stderr:
        sys.exit(f"wheel: without its extra the command does not name it: {bare.stdout}{bare.stderr}")
    install(python, f"{wheel}[cli]")
    for option, text in (("--help", "driver"), ("--version", PROJECT["project"]["name"])):
        done = subprocess.run([command, option], env=environment(None), capture_output=True, text=True, check=False)
        if done.returncode or text not in done.stdout:
            sys.exit(f"wheel: mainstem {option} fails: {done.stdout}{done.stderr}")
    say("the command works with its extra, and names it without")


def check_installed(python: Path, cwd: Path) -> None:
    """Check that the installation in that Python is compiled, transports messages and passes its tests."""
    run(python, "-I", "-c", CHECK, *NOT_COMPILED, cwd=cwd)
    run(python, "-I", "-c", STREAMS, cwd=cwd)


def test_installed(python: Path) -> None:
    """Run the tests that need no other package."""
    tests = [f"tests/unit/{name}" for name in TESTS]
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests)


def check_extras(wheel: Path, names: list[str], directory: Path) -> None:
    """Check that each extra by itself installs everything that its part of Mainstem imports."""
    for name in names:
        begin = time.monotonic()
        python = empty_environment(directory / name)
        install(python, f"{wheel}[{name}]")
        run(python, "-I", "-c", f"import {IMPORTS[name]}", cwd=directory)
        shutil.rmtree(directory / name)
        say(f"extra {name}: installed and imported in {time.monotonic() - begin:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", action="store_true", help="test what this Python has")
    parser.add_argument("--no-compiler", action="store_true", help="hide the system's C compiler from the build")
    parser.add_argument("--extras", nargs="*", metavar="NAME", choices=sorted(IMPORTS), help="of these, or of all")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="copy the source archive and the wheel there")
    chosen = parser.parse_args()
    if chosen.installed:
        check_installed(Path(sys.executable), Path(tempfile.gettempdir()))
        test_installed(Path(sys.executable))
        return
    with tempfile.TemporaryDirectory(prefix="mainstem-wheel-") as name:
        directory = Path(name)
        archive = make_sdist(directory)
        compare(archive)
        hidden = without_compilers(directory / "bin") if chosen.no_compiler else None
        begin = time.monotonic()
        verbose = ["--verbose"] if chosen.no_compiler else ["--quiet"]
        pip = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", *verbose]
        run(*pip, "--no-deps", "--wheel-dir", directory / "built", archive, hidden=hidden, cwd=directory)
        [built] = (directory / "built").glob("*.whl")
        say(f"built in {time.monotonic() - begin:.0f} s: {built.name}")
        wheel = repair(built, directory / "repaired")
        python = empty_environment(directory / "environment")
        install(python, "--no-index", str(wheel))
        check_installed(python, directory)
        check_command(python, wheel)
        install(python, *PROJECT["dependency-groups"]["test"])
        test_installed(python)
        if chosen.extras is not None:
            check_extras(wheel, chosen.extras or list(IMPORTS), directory)
        if chosen.keep:
            chosen.keep.mkdir(parents=True, exist_ok=True)
            for file in (archive, wheel):
                shutil.copy(file, chosen.keep)
    say("all is well")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"wheel: this step failed: {' '.join(map(str, error.cmd))[:400]}")
