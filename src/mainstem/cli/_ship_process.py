"""``mainstem ship`` beside a recorder: a process of its own, so that shipping takes nothing of the recorder's interpreter.

Its standard input is the tie: when the recorder closes it, or dies, the shipper ships what is left and ends.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Self

from mainstem.access import RECORDINGS_MODE, make_directory
from mainstem.cli._logs import say
from mainstem.cli.ship import READY
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# After the recorder has ended; what is left then is shipped the next time.
PATIENCE_S = 60.0
CHECK_NS = NS_PER_SECOND
FIRST_RESTART_NS = NS_PER_SECOND
LONGEST_RESTART_NS = 60 * NS_PER_SECOND


class ShipProcess:
    """A context manager: started before the recorder, and left after it has closed its recordings."""

    def __init__(self, directory: Path, url: str, arguments: Sequence[str]) -> None:
        self._directory, self._url = directory, url
        self._command = [
            sys.executable, "-m", "mainstem", "ship", str(directory), url, *arguments, "--beside-recorder",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._checked_ns = 0
        self._restart_ns: int | None = None
        self._pause_ns = FIRST_RESTART_NS

    def __enter__(self) -> Self:
        make_directory(self._directory, default=RECORDINGS_MODE)
        process = self._start()
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY.encode():
            process.wait()
            raise ConfigurationError(f"--ship-to: {self._url} cannot be shipped to")
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        # A process group of its own: Ctrl-C reaches the recorder, which ends the shipper when it has closed its recordings.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        return self._process

    def poll(self) -> None:
        """Starts the shipper again where it has died; called often."""
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if now_ns - self._checked_ns < CHECK_NS:
            return
        self._checked_ns = now_ns
        if self._restart_ns is not None:
            if now_ns >= self._restart_ns:
                self._restart_ns = None
                self._start()
        elif self._process is not None and self._process.poll() is not None:
            say(f"mainstem record: the shipper has ended with status {self._process.returncode}; it is started again")
            self._process = None
            self._restart_ns = now_ns + self._pause_ns
            self._pause_ns = min(self._pause_ns * 2, LONGEST_RESTART_NS)

    def __exit__(self, *_: object) -> None:
        process = self._process if self._process is not None else self._start()
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(PATIENCE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.terminate()
            process.wait()
        if process.returncode != 0:
            say(f"not all of {self._directory} is shipped: `mainstem ship {self._directory} {self._url} --once`")
