"""Media drivers of both implementations, each in its own process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.processes import END_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = "MAINSTEM_AERONMD"
NO_REFERENCE = f"{REFERENCE} names no reference driver"
READY_TIMEOUT_S = 30.0
POLL_S = 0.0005


@dataclass(frozen=True)
class DriverProcess:
    """A driver that is ready for clients: its directory, and the time from the start of its process until it was ready."""

    kind: str
    process: subprocess.Popen[bytes]
    directory: Path
    start_s: float

    def processor_ns(self) -> int:
        """Return the CPU time that the driver's threads have used so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def has_reference() -> bool:
    return bool(os.environ.get(REFERENCE))


@contextmanager
def launched(kind: str) -> Iterator[DriverProcess]:
    """Run a driver, ``mainstem`` or ``reference``, with default settings and one thread for all agents, until the block ends."""
    command = [os.environ[REFERENCE]] if kind == "reference" else [sys.executable, "-m", "mainstem", "driver"]
    parent = Path(tempfile.mkdtemp(prefix="mainstem-bench-", dir="/dev/shm"))
    directory = parent / "aeron"
    environment = {**os.environ, "AERON_DIR": str(directory), "AERON_THREADING_MODE": "SHARED"}
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        _wait_ready(process, directory / "cnc.dat", kind)
        yield DriverProcess(kind, process, directory, time.perf_counter() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            shutil.rmtree(parent, ignore_errors=True)


def _wait_ready(process: subprocess.Popen[bytes], cnc: Path, kind: str) -> None:
    """Wait for the version in the CnC file, which a driver writes last."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            with cnc.open("rb") as file:
                if file.read(4) not in (b"", bytes(4)):
                    return
        except FileNotFoundError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the {kind} driver did not start")
        time.sleep(POLL_S)
