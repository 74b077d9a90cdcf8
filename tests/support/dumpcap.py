"""Capture the loopback interface with dumpcap, Wireshark's capture program."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Self

import pytest
from tests.support.live_driver import TIMEOUT_S
from tests.support.waiting import StallTimeout

if TYPE_CHECKING:
    from pathlib import Path


class Dumpcap:
    """Captures loopback traffic that matches a filter, within a ``with`` block. Skips if capturing is not permitted."""

    def __init__(self, path: Path, only: str) -> None:
        self._path, self._only = path, only

    def __enter__(self) -> Self:
        command = ["dumpcap", "-q", "-B", "64", "-i", "lo", "-f", self._only, "-w", str(self._path)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        seen, stall = b"", StallTimeout("dumpcap starts")
        while b"File:" not in seen:
            seen += self._process.stderr.read() or b""
            if self._process.poll() is not None:
                self._process.stderr.close()
                pytest.skip(f"capturing is not permitted: {seen.decode(errors='replace').strip()}")
            stall.check(seen)
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        # The kernel delivers packets that it has buffered for the capture within a second.
        time.sleep(1.0)
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        assert self._process.stderr is not None
        self._process.stderr.close()
