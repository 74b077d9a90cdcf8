"""Builds Mainstem and runs its unit tests under other Pythons: ``python tools/pythons.py [VERSION ...] [--core]``.

A Python is taken from PATH, or else from a suite of Debian that has it, which debootstrap installs below ``--folder`` (root only,
some 600 MB, once). Its packages come from PyPI as wheels. The tests that need PySpark are left out: `tools/pyspark_versions.py` has
versions of that. A Python takes five to ten minutes, with ``--core`` three; one that can be had nowhere is named, and fails only if
it was asked for.

``--core`` runs the tests that need no other package (``TESTS`` in tools/wheel.py), and so does a free-threaded Python, for which
many packages have no wheel. There the interpreter's lock must come back with what is compiled, which relies on it.

``arm64`` is Debian's Python of that architecture, emulated by qemu-user. The compiler is the ziglang wheel's, which compiles here
for there; what is emulated are the tests of ``ARM64_TESTS``, at most ``ARM64_SECONDS``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import cross
from wheel import TESTS as CORE_TESTS

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.12", "3.13", "3.14", "3.14t", "arm64")
# Which suite of Debian has which. 3.12 was in none that is still served, and none has a free-threaded one.
SUITES = {"3.13": "forky", "3.14": "forky"}
MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("ca-certificates", "gcc", "libc6-dev", "make")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
EXTRAS = (
    "cli,arrow,polars,stores,quic,quic-aioquic,encryption,avro,protobuf,serialisation,metrics,serve,top,delta,iceberg"
)
# Of the group `dev`, what tests/unit imports.
TESTING = (
    "confluent-kafka[avro,protobuf,schemaregistry]>=2.6",
    "duckdb>=1.2",
    "moto[server]>=5.1",
    "pandas>=2.2,<3",
    "pytz",
    "pyyaml>=6",
)
NEED_SPARK = (
    "tests/unit/spark",
    "tests/unit/demo",
    "tests/unit/capture/test_captures_elsewhere.py",
    "tests/unit/test_benchmark_options.py",
)
# A free-threaded interpreter takes its lock back, with a warning, where a module does not say that it can do without.
LOCK_COMES_BACK = """
import importlib, pathlib, sys
import mainstem
home = pathlib.Path(mainstem.__file__).parent
for path in (home / "_core").rglob("*.py"):
    name = ".".join(("mainstem", *path.relative_to(home).with_suffix("").parts)).removesuffix(".__init__")
    if importlib.import_module(name).__file__.endswith(".so") and not sys._is_gil_enabled():
        sys.exit(f"{name} leaves the interpreter's lock off")
"""

ARM64 = "arm64"
ARM64_SUITE, ARM64_PYTHON = "trixie", "3.13"
ARM64_TARGET = "aarch64-linux-gnu.2.36"
# Emulation is so much slower that collecting all tests takes minutes: those that need no other package.
ARM64_TESTS = tuple(f"tests/unit/{name}" for name in CORE_TESTS)
# What is not there: options of sockets that qemu-user does not pass on, and an installed package.
ARM64_LEFT_OUT = (
    "tests/unit/aeron/driver/media/test_transport.py::test_a_multicast_group_reaches_every_member_on_its_interface",
    "tests/unit/aeron/driver/media/test_transport.py::test_the_kernel_notes_when_a_datagram_arrived",
    "tests/unit/test_exports.py::test_the_version_is_that_of_the_installed_package",
)
ARM64_SECONDS = 2 * 3600
QEMU = "qemu-aarch64-static"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
QEMU_FORMAT = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")


def copy_tree(target: Path) -> None:
    """Copies what is versioned; what was built there before stays, so that only what changed is compiled."""
    names = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    ).split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, target / name
        if source.exists() and not (copy.exists() and copy.stat().st_mtime == source.stat().st_mtime):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)


def script(python: str, place: str, *, core: bool, free_threaded: bool) -> str:
    """What builds and tests the copy in ``place``, under that Python."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = [*needed["build-system"]["requires"], *needed["dependency-groups"]["test"], *(() if core else TESTING)]
    own = f"{place}/environment/bin/python"
    install = f"{own} -m pip install --quiet --disable-pip-version-check --prefer-binary".split()
    tests = [f"tests/unit/{name}" for name in CORE_TESTS]
    if not core:
        tests = [*(f"--ignore={name}" for name in NEED_SPARK), "tests/unit"]
    package = "." if core else f".[{EXTRAS}]"
    lines = [
        ["cd", f"{place}/tree"],
        [python, "-m", "venv", f"{place}/environment"],
        [*install, *packages],
        ["env", "MAINSTEM_COMPILE=no", *install, "--no-build-isolation", "--editable", package],
        [own, "setup.py", "--quiet", "build_ext", "--inplace"],
    ]
    if free_threaded:
        lines += [
            [own, "-c", LOCK_COMES_BACK],
            ["export", "PYTHON_GIL=1"],
        ]  # without the warning, which would fail the tests
    lines.append([own, "-m", "pytest", "-q", "-m", "not long", *tests])
    return " && ".join(shlex.join(line) for line in lines)


def install_system(folder: Path, suite: str) -> Path:
    """A system of that suite with its Pythons, installed where it is not there."""
    root = folder / suite
    ready = root / "mainstem-ready"
    if not ready.exists():
        pythons = [
            f"python{version}-{part}" for version in SUITES for part in ("dev", "venv") if SUITES[version] == suite
        ]
        include = ",".join((*PACKAGES, *pythons))
        print(f"pythons: installing Debian {suite} in {root}", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        # debootstrap has a script for each suite that was there when it was released; that of sid is the newest.
        command = ["debootstrap", "--variant=minbase", f"--include={include}", suite, str(root), MIRROR]
        with (folder / f"{suite}.log").open("w") as log:
            subprocess.run([*command, "/usr/share/debootstrap/scripts/sid"], check=True, stdout=log, stderr=log)
        ready.touch()
    copy_names(root)
    return root


def copy_names(root: Path) -> None:
    """Gives that system the names of hosts and the authorities that this one has."""
    for name in ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path("/", name), root / name)


def on_path(version: str) -> str | None:
    """The program of that version, where PATH has one that runs; python3.14 may be the free-threaded one, which is 3.14t here."""
    python = shutil.which(f"python{version}")
    if python is None:
        return None
    code = "import sys, sysconfig; v = sys.version_info; t = 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')); "
    command = [python, "-I", "-c", code + "print(f'{v.major}.{v.minor}{t}')"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return python if done.stdout.strip() == version else None


def why_not(version: str) -> str:
    """Why that Python cannot be had here; nothing where it can."""
    if version == ARM64:
        programs = ("debootstrap", "dpkg-deb", "unshare", QEMU)
        if missing := [name for name in programs if shutil.which(name) is None]:
            return f"{', '.join(missing)} not found (apt-get install debootstrap qemu-user-static)"
        if not cross.has_zig():
            return "no ziglang wheel beside this Python (pip install ziglang), which compiles for arm64"
        return "" if os.geteuid() == 0 else "only root can install a system of that architecture"
    if on_path(version):
        return ""
    if version not in SUITES:
        return f"no python{version} on PATH, and no suite of Debian has it"
    if os.geteuid() != 0:
        return f"no python{version} on PATH, and only root can install Debian's"
    if shutil.which("debootstrap") is None or shutil.which("unshare") is None:
        return f"no python{version} on PATH, and no debootstrap (apt-get install debootstrap) to install Debian's"
    return ""


def command_for(version: str, folder: Path, *, core: bool) -> list[str]:
    """The command that builds and tests under that version."""
    if version == ARM64:
        return command_for_arm64(folder)
    free_threaded = version.endswith("t")
    core = core or free_threaded
    if python := on_path(version):
        place = folder / version
        copy_tree(place / "tree")
        return ["sh", "-c", script(python, str(place), core=core, free_threaded=free_threaded)]
    root = install_system(folder, SUITES[version])
    copy_tree(root / version / "tree")
    return in_root(root, script(f"python{version}", f"/{version}", core=core, free_threaded=False))


def in_root(root: Path, command: str, before: str = "true") -> list[str]:
    """The command that runs one of a shell in that system. The mounts are its process's own, and end with it."""
    place = shlex.quote(str(root))
    inside = (
        f"env -i PATH={SYSTEM_PATH} HOME=/root LANG=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt "
        f"chroot {place} sh -c {shlex.quote(command)}"
    )
    mounts = f"mount --rbind /dev {place}/dev && mount -t proc proc {place}/proc"
    return ["unshare", "--mount", "sh", "-c", f"{before} && {mounts} && {inside}"]


def command_for_arm64(folder: Path) -> list[str]:
    """The command that runs the tests of what is compiled under arm64, which is made here and emulated."""
    root = extract_arm64(folder)
    tree = root / "tree"
    copy_tree(tree)
    print(f"pythons: compiling for {ARM64_TARGET}", flush=True)
    build_arm64(root, tree / "src")
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    packages = root / "packages"
    if not packages.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 28)]
        subprocess.run(
            [*pip, *platforms, f"--python-version={ARM64_PYTHON}", "--target", packages, *needed], check=True
        )
    left_out = [f"--deselect={name}" for name in ARM64_LEFT_OUT]
    pytest = [f"python{ARM64_PYTHON}", "-u", "-m", "pytest", "-q", "-m", "not long", *left_out, *ARM64_TESTS]
    words = ["env", "PYTHONPATH=/tree/src:/packages", "timeout", str(ARM64_SECONDS), *pytest]
    # Where nothing is registered for programs of arm64, this is, until the machine is started again.
    register = (
        f"(test -e {BINFMT}/register || mount -t binfmt_misc none {BINFMT}) && "
        f"(test -e {BINFMT}/qemu-aarch64 || cat {QEMU_FORMAT} > {BINFMT}/register)"
    )
    return in_root(root, f"cd /tree && {shlex.join(words)}", register)


def extract_arm64(folder: Path) -> Path:
    """Debian's Python of arm64, its packages extracted and not configured, which takes no emulation."""
    root = folder / ARM64
    ready = root / "mainstem-ready"
    if not ready.exists():
        print(f"pythons: extracting Debian {ARM64_SUITE} for arm64 in {root}", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        include = f"--include=python{ARM64_PYTHON},libpython{ARM64_PYTHON}-dev"
        command = ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", include, ARM64_SUITE, str(root)]
        with (folder / f"{ARM64}.log").open("w") as log:
            subprocess.run([*command, MIRROR, "/usr/share/debootstrap/scripts/sid"], check=True, stdout=log, stderr=log)
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        ready.touch()
    copy_names(root)
    return root


def build_arm64(root: Path, target: Path) -> None:
    """Compiles each module that is older than its source."""
    os.chdir(ROOT)
    own = root / "usr" / "include" / f"python{ARM64_PYTHON}"
    pyconfig = root / "usr" / "include" / "aarch64-linux-gnu" / f"python{ARM64_PYTHON}" / "pyconfig.h"
    shutil.rmtree(root / "headers", ignore_errors=True)
    include = cross.headers(root / "headers", own, pyconfig.read_text())
    suffix = f".cpython-{ARM64_PYTHON.replace('.', '')}-aarch64-linux-gnu.so"
    newest = max(path.stat().st_mtime for path in cross.CORE.rglob("*.p[yx]*"))
    for source in cross.modules():
        output = (target / source.relative_to(ROOT / "src")).with_suffix(suffix)
        if output.exists() and output.stat().st_mtime > newest:
            continue
        options = ("-O2", "-shared", "-fPIC", "-DNDEBUG")
        if printed := cross.compile_module(source, output, ARM64_TARGET, include, *options):
            sys.exit(f"pythons: {source} for {ARM64_TARGET}:\n{printed[-3000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(VERSIONS)}; without any, those that can be had")
    parser.add_argument("--core", action="store_true", help="only the tests that need no other package")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "mainstem" / "pythons")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if folder.is_relative_to(ROOT):
        parser.error("--folder is inside the repository")
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for version in chosen.versions or VERSIONS:
        if reason := why_not(version):
            outcomes[version] = not chosen.versions, f"not run: {reason}"
            continue
        print(f"== Python {version}", flush=True)
        # What it imports is the copy, which is installed there.
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(command_for(version, folder, core=chosen.core), env=environment, check=False)
        outcomes[version] = done.returncode == 0, "passed" if done.returncode == 0 else "FAILED"
    for version, (_, text) in outcomes.items():
        print(f"{version}: {text}")
    return 0 if all(is_well for is_well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
