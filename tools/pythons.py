"""Builds Mainstem and runs ``tests/unit`` under other Pythons: ``python tools/pythons.py [VERSION ...]``.

A Python is taken from PATH, or else from a suite of Debian that has it, which debootstrap installs below ``--folder`` (root only,
some 600 MB, once). Its packages come from PyPI as wheels. The tests that need PySpark are left out: `tools/pyspark_versions.py` has
versions of that. A Python takes five to ten minutes; one that can be had nowhere is named, and fails only if it was asked for.
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

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.12", "3.13", "3.14", "3.14t")
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
    "pytz",
    "pyyaml>=6",
)
NEED_SPARK = (
    "tests/unit/spark",
    "tests/unit/demo",
    "tests/unit/capture/test_captures_elsewhere.py",
    "tests/unit/test_benchmark_options.py",
)


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


def script(python: str, place: str) -> str:
    """What builds and tests the copy in ``place``, under that Python."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = [
        *needed["build-system"]["requires"],
        *needed["dependency-groups"]["test"],
        *TESTING,
    ]
    own = f"{place}/environment/bin/python"
    install = f"{own} -m pip install --quiet --disable-pip-version-check --prefer-binary"
    ignored = [f"--ignore={name}" for name in NEED_SPARK]
    lines = [
        ["cd", f"{place}/tree"],
        [python, "-m", "venv", f"{place}/environment"],
        [*install.split(), *packages],
        ["env", "MAINSTEM_COMPILE=no", *install.split(), "--no-build-isolation", "--editable", f".[{EXTRAS}]"],
        [own, "setup.py", "--quiet", "build_ext", "--inplace"],
        [own, "-m", "pytest", "-q", "-m", "not long", *ignored, "tests/unit"],
    ]
    return " && ".join(shlex.join(line) for line in lines)


def system(folder: Path, suite: str) -> Path:
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
    for name in ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", name).exists():
            shutil.copy(Path("/", name), root / name)
    return root


def why_no_system(version: str) -> str:
    """Why Debian's Python of that version cannot be had here; nothing where it can."""
    if version not in SUITES:
        return f"no python{version} on PATH, and no suite of Debian has it"
    if os.geteuid() != 0:
        return f"no python{version} on PATH, and only root can install Debian's"
    if shutil.which("debootstrap") is None or shutil.which("unshare") is None:
        return f"no python{version} on PATH, and no debootstrap (apt-get install debootstrap) to install Debian's"
    return ""


def command_for(version: str, folder: Path) -> list[str]:
    """The command that builds and tests under that version."""
    name = f"python{version}"
    if python := shutil.which(name):
        place = folder / version
        copy_tree(place / "tree")
        return ["sh", "-c", script(python, str(place))]
    root = system(folder, SUITES[version])
    copy_tree(root / version / "tree")
    inside = (
        f"env -i PATH={SYSTEM_PATH} HOME=/root LANG=C.UTF-8 PIP_CERT=/etc/ssl/certs/ca-certificates.crt "
        f"chroot {shlex.quote(str(root))} sh -c {shlex.quote(script(name, f'/{version}'))}"
    )
    # The mounts are this process's own, and end with it.
    mounts = (
        f"mount --rbind /dev {shlex.quote(str(root / 'dev'))} && mount -t proc proc {shlex.quote(str(root / 'proc'))}"
    )
    return ["unshare", "--mount", "sh", "-c", f"{mounts} && {inside}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=f"of {', '.join(VERSIONS)}; without any, those that can be had")
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "mainstem" / "pythons")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if folder.is_relative_to(ROOT):
        parser.error("--folder is inside the repository")
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for version in chosen.versions or VERSIONS:
        reason = "" if shutil.which(f"python{version}") else why_no_system(version)
        if reason:
            outcomes[version] = not chosen.versions, f"not run: {reason}"
            continue
        print(f"== Python {version}", flush=True)
        done = subprocess.run(command_for(version, folder), check=False)
        outcomes[version] = done.returncode == 0, "passed" if done.returncode == 0 else "FAILED"
    for version, (_, text) in outcomes.items():
        print(f"{version}: {text}")
    return 0 if all(is_well for is_well, _ in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
