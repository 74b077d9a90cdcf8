"""Run a test class of the reference implementation against Mainstem's driver and archive.

``MAINSTEM_REFERENCE_TESTS`` names a directory of compiled classes and jars (README.md). Each class runs in network, mount and
process namespaces of its own: with its own ports, ``/dev/shm`` and ``/tmp``, and nothing that it starts survives it.

Run one class by hand, here with both of Java's own as a control:

    python -m tests.interop.reference.harness io.aeron.PubAndSubTest --driver java --archive java
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from tests.support import java

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "MAINSTEM_REFERENCE_TESTS"
CLASS_LIMIT_S = 3600  # a class that takes longer hangs
LAUNCHER = "org.junit.platform.console.ConsoleLauncher"
MODULES = (
    "java.base/java.net",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.nio.ch",
)
# Small logs and files that are not checked for space, as for the reference's own runs; tests on two cores cannot spin.
PROPERTIES = {
    "aeron.conductor.idle.strategy": "yield",
    "aeron.dir.delete.on.start": "true",
    "aeron.event.log": "admin",
    "aeron.fallback.logger": "no_op",
    "aeron.perform.storage.checks": "false",
    "aeron.receiver.idle.strategy": "yield",
    "aeron.sender.idle.strategy": "yield",
    "aeron.shared.idle.strategy": "yield",
    "aeron.term.buffer.sparse.file": "true",
    "aeron.timer.interval": "100ms",
    "agrona.strict.alignment.checks": "true",
    "java.net.preferIPv4Stack": "true",
    "java.util.logging.config.class": "io.aeron.test.DisableJavaUtilLogging",
    "mainstem.time.factor": "6",
    "net.bytebuddy.experimental": "true",
}
# The arguments: the scratch directory, and the command.
ROOM = r"""
set -e
scratch=$1; shift
mount -t proc proc /proc
ip link set lo up multicast on
ip route add default dev lo  # datagrams to other hosts are lost, but can be sent
mount -t tmpfs -o size=6g tmpfs /dev/shm
mkdir -p "$scratch/tmp"
mount --bind "$scratch/tmp" /tmp
exec "$@"
"""


@dataclass
class Outcome:
    """What a class's tests did. The keys of ``others`` are methods; the values say why their tests did not pass."""

    tests: int = 0
    passed: int = 0
    others: dict[str, list[str]] = field(default_factory=dict)
    text: str = ""


def directory() -> Path:
    return Path(os.environ[VARIABLE])


def why_not() -> str:
    """Return why the reference's tests cannot run here, or an empty string if they can."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} does not name a directory with the reference's compiled tests"
    if not (directory() / "classes").is_dir():
        return f"{VARIABLE}={directory()} has no directory 'classes'"
    if reason := java.why_not():
        return reason
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    if missing:
        return f"there is no {' or '.join(missing)} command"
    done = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    return f"namespaces are refused: {done.stderr.strip()}" if done.returncode else ""


def run(name: str, *, driver: str = "mainstem", archive: str = "java") -> Outcome:
    """Run a test class, or a method as ``CLASS#METHOD(TYPES)``. ``driver`` and ``archive`` are ``mainstem`` or ``java``."""
    with tempfile.TemporaryDirectory(prefix="mainstem-reference-", dir=_scratch_parent()) as made:
        scratch = Path(made)
        command = [*_unshare(), "sh", "-c", ROOM, "sh", str(scratch), *_command(name, scratch, driver, archive)]
        output = scratch / "output.txt"
        env = os.environ | {"PATH": f"{_programs(scratch)}{os.pathsep}{os.environ['PATH']}"}
        with output.open("w") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=scratch
            )
            try:
                process.wait(CLASS_LIMIT_S)
            finally:
                process.kill()  # and with it, everything in its process namespace
                process.wait()
        text = output.read_text(errors="replace")
        if archive == "mainstem":  # otherwise, Java's archive has passed its own tests
            assert "TestAgent transformed io.aeron.archive.Archive" in text, text[:4000]
        reports = list((scratch / "reports").glob("TEST-*.xml"))
        assert reports, f"{name} has no report:\n{text[-4000:]}"
        return _outcome(reports, text)


def _unshare() -> list[str]:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    return command if os.geteuid() == 0 else [*command, "--user", "--map-root-user"]


def _scratch_parent() -> Path | None:
    """Return a directory that the room's own ``/tmp`` does not hide."""
    return Path("/var/tmp") if Path("/var/tmp").is_dir() else None


def _programs(scratch: Path) -> Path:
    """Make the programs that tests start: the driver, and ``sudo``, which a namespace's root does not need."""
    programs = scratch / "bin"
    programs.mkdir()
    words = shlex.join([sys.executable, "-m", "mainstem", "driver"])
    for name, text in (("aeronmd", f"exec {words}"), ("sudo", '[ "$1" = -n ] && shift\nexec "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return programs


def _command(name: str, scratch: Path, driver: str, archive: str) -> list[str]:
    program = java.java_program()
    assert program is not None
    line = [program, *(f"--add-opens={module}=ALL-UNNAMED" for module in MODULES)]
    line += ["-Xmx1g", "-XX:+UseSerialGC", "-XX:+EnableDynamicAgentLoading"]
    line += [f"-javaagent:{jar}" for jar in _jars() if jar.name.startswith("mockito-core")]
    properties = dict(PROPERTIES)
    if driver == "mainstem":
        properties["aeron.test.system.aeronmd.path"] = str(scratch / "bin" / "aeronmd")
    line.append(f"-javaagent:{_agent(scratch)}")
    if archive == "mainstem":
        properties["mainstem.archive"] = shlex.join([sys.executable, "-m", "mainstem", "archive", "serve"])
    line += [f"-D{key}={value}" for key, value in properties.items()]
    line += ["-cp", _classpath(), LAUNCHER, "execute", "--disable-banner", "--disable-ansi-colors", "--details=tree"]
    return [*line, "--reports-dir", str(scratch / "reports"), "-m" if "#" in name else "-c", name]


@cache
def _jars() -> list[Path]:
    return sorted(directory().glob("*.jar")) + sorted(directory().glob("jars/*.jar"))


def _classpath() -> str:
    folders = sorted(path for path in (directory() / "classes").iterdir() if path.is_dir())
    return os.pathsep.join(map(str, [*folders, *_jars()]))


def _agent(scratch: Path) -> Path:
    """Compile the Java agent, which starts Mainstem's archive in place of Java's."""
    javac = shutil.which("javac")
    assert javac is not None
    classes, agent = scratch / "agent", scratch / "agent.jar"
    source = Path(__file__).parent / "java" / "TestAgent.java"
    command = [javac, "-nowarn", "-proc:none", "-cp", _classpath(), "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest = "Manifest-Version: 1.0\nPremain-Class: TestAgent\nCan-Retransform-Classes: true\n"
    with zipfile.ZipFile(agent, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", manifest)
        for path in sorted(classes.glob("*.class")):
            jar.write(path, path.name)
    return agent


def _outcome(reports: Sequence[Path], text: str) -> Outcome:
    outcome = Outcome(text=text)
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            outcome.tests += 1
            found = next((each for kind in ("failure", "error", "skipped") for each in case.iter(kind)), None)
            if found is None:
                outcome.passed += 1
                continue
            reason = (found.get("message") or found.text or "").strip().partition("\n")[0]
            reason = reason.removeprefix("org.opentest4j.TestAbortedException: ")
            how = "aborted" if found.tag == "skipped" else "failed"
            outcome.others.setdefault(_method(case.get("name", "")), []).append(f"{how}: {reason}")
    return outcome


def _method(name: str) -> str:
    """Return the method of a test: ``shouldRun`` of ``shouldRun(String)[2]`` and of ``shouldRun{String}[2]``."""
    match = re.match(r"\w+", name)
    assert match is not None, name
    return match[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run test classes of the reference implementation.")
    parser.add_argument("classes", nargs="+", metavar="CLASS")
    parser.add_argument("--driver", choices=("mainstem", "java"), default="mainstem")
    parser.add_argument("--archive", choices=("mainstem", "java"), default="java")
    parser.add_argument("--output", type=Path, help="directory for what the tests print")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the `finally` that ends the tests
    if reason := why_not():
        sys.exit(reason)
    for name in arguments.classes:
        start_s = time.monotonic()
        outcome = run(name, driver=arguments.driver, archive=arguments.archive)
        print(f"{name}: {outcome.passed} of {outcome.tests} passed in {time.monotonic() - start_s:.0f} s", flush=True)
        for method, reasons in outcome.others.items():
            for reason, count in Counter(reasons).items():
                print(f"  {count} {method}: {reason}", flush=True)
        if arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            (arguments.output / f"{name}-{arguments.driver}-{arguments.archive}.txt").write_text(outcome.text)


if __name__ == "__main__":
    main()
