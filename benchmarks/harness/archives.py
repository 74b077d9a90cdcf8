"""Archives of both implementations, each in its own process on a running driver, and their costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.processes import END_TIMEOUT_S, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

JAR = Path(__file__).resolve().parents[2] / "build" / "reference" / "aeron-all-1.51.0.jar"
NO_JAVA = f"it needs Java and {JAR.name} in build/reference"
READY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ArchiveProcess:
    """An archive's process, and the channel for its requests."""

    process: subprocess.Popen[str]
    control: str

    @property
    def pid(self) -> int:
        return self.process.pid


def has_java() -> bool:
    return JAR.exists() and shutil.which("java") is not None


@contextmanager
def archiving(kind: str, directory: Path, driver: Path, **settings: object) -> Iterator[ArchiveProcess]:
    """Run an archive, ``mainstem`` or ``java``, until the block ends. Settings have Mainstem's names."""
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    if kind == "java":
        command = ["java", "--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"]
        values: dict[str, object] = {
            "dir": directory,
            "control.channel": control,
            "replication.channel": "aeron:udp?endpoint=localhost:0",
            "recording.events.enabled": "false",
            "threading.mode": "SHARED",
        }
        values |= {name.replace("_", "."): value for name, value in settings.items()}
        command += [f"-Daeron.dir={driver}", *(f"-Daeron.archive.{name}={value}" for name, value in values.items())]
        command += ["-cp", str(JAR), "io.aeron.archive.Archive"]
    else:
        command = [sys.executable, "-m", "mainstem", "archive", "--archive-dir", str(directory), "--dir", str(driver)]
        command += ["--control", control]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        mark = directory / "archive-mark.dat"
        while not (mark.exists() and mark.read_bytes()[8:12] != bytes(4)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the {kind} archive did not start")
            time.sleep(0.05)
        yield ArchiveProcess(process, control)
    finally:
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_s(pid: int) -> float:
    """Return the CPU time used by the living threads of a process, in seconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def memory_mb(pid: int) -> dict[str, float]:
    """Return the memory of a process: its private part, and the part shared with others as logs and counters."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kb = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "kB" in value}
    return {"own": kb["RssAnon"] / 1e3, "shared": (kb["RssShmem"] + kb["RssFile"]) / 1e3}
