"""Other implementations, if environment variables name them.

``MAINSTEM_AERONMD``: the binary of a reference media driver. ``MAINSTEM_PYAERON_PYTHON``: a Python that can import pyaeron.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout

HERE = Path(__file__).resolve().parent

DriverFactory = Callable[..., "DriverProcess"]


class DriverProcess:
    """A media driver of either implementation, in its own process."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment, "AERON_DIR": str(directory)}, stdout=subprocess.DEVNULL
        )
        stall = StallTimeout(f"the driver starts: {command}")
        cnc = directory / "cnc.dat"
        while not (cnc.exists() and cnc.stat().st_size > 128 and cnc.read_bytes()[:4] != bytes(4)):
            assert self.process.poll() is None, f"the driver ended at start: {command}"
            stall.check()
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STALL_S)
            except subprocess.TimeoutExpired:
                self.kill()


@pytest.fixture
def aeron_directory() -> Iterator[Callable[[], Path]]:
    """Create fresh Aeron directories in shared memory, and remove them afterward."""
    made: list[Path] = []

    def make() -> Path:
        path = Path(tempfile.mkdtemp(prefix="mainstem-interop-", dir="/dev/shm"))
        made.append(path)
        return path / "aeron"

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_driver(aeron_directory: Callable[[], Path]) -> Iterator[DriverFactory]:
    """Return ``start_driver("reference" | "mainstem", **environment)``; every driver is stopped at the end."""
    running: list[DriverProcess] = []

    def start(kind: str, **environment: str) -> DriverProcess:
        if kind == "reference":
            binary = os.environ.get("MAINSTEM_AERONMD")
            if not binary:
                pytest.skip("MAINSTEM_AERONMD names no reference driver")
            command = [binary]
            environment.setdefault("AERON_THREADING_MODE", "SHARED")
        else:
            command = [sys.executable, "-m", "mainstem", "driver"]
            environment.setdefault("AERON_THREADING_MODE", "SHARED")
        driver = DriverProcess(command, aeron_directory(), environment)
        running.append(driver)
        return driver

    yield start
    for driver in running:
        driver.stop()


class Peer:
    """One end of a stream, in its own process."""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "stream": 1001,
        "count": 0,
        "rounds": 1,
        "largest": 8_192,  # the longest message that a 64 KiB term allows
        "slow_s": 0.0,
        "exclusive": False,
        "destinations": [],
        "hold": False,
        "to_end": False,
    }

    def __init__(self, python: str, kind: str, options: dict[str, Any], environment: dict[str, str]) -> None:
        self.kind = kind
        self.process = subprocess.Popen(
            [python, str(HERE / "peer.py"), kind, json.dumps(self.DEFAULTS | options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if options["role"] == "watch" else None,
            text=True,
            env={**os.environ, **environment},
        )

    def last_words(self) -> str:
        """Read everything it still prints, on either output stream, until it exits."""
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        self.process.wait(STALL_S)
        return said

    def wait_for(self, word: str) -> None:
        """Wait until it prints `word`."""
        assert self._line() == word

    def result(self) -> dict[str, Any]:
        """Return its facts, once it has finished."""
        line = self._line()
        while line in ("round", "gone"):
            line = self._line()
        facts: dict[str, Any] = json.loads(line)
        self.process.wait(STALL_S)
        return facts

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"a peer ended without a word (exit {self.process.wait()})"
        return line


PeerFactory = Callable[..., Peer]


@pytest.fixture
def start_peer() -> Iterator[PeerFactory]:
    """Return ``start_peer("pyaeron" | "mainstem", role, driver, channel, **options)``; ``environment`` is for the process."""
    running: list[Peer] = []

    def start(
        kind: str,
        role: str,
        driver: DriverProcess,
        channel: str,
        *,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> Peer:
        python = sys.executable
        if kind == "pyaeron":
            python = os.environ.get("MAINSTEM_PYAERON_PYTHON", "")
            if not python:
                pytest.skip("MAINSTEM_PYAERON_PYTHON names no Python with pyaeron")
        options = {"role": role, "directory": str(driver.directory), "channel": channel, **options}
        peer = Peer(python, kind, options, environment or {})
        running.append(peer)
        return peer

    yield start
    for peer in running:
        peer.stop()


@pytest.fixture
def port() -> int:
    """Return the first of four unused ports, chosen so that a lingering stream disturbs no other test."""
    return free_port()


@pytest.fixture
def other_port() -> int:
    """Return the first of four more ports."""
    return free_port()
