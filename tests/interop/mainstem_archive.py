"""``mainstem archive`` in its own process, on a running driver."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mainstem_archive(directory: Path, driver: Path, control: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "mainstem", "archive", "--archive-dir", str(directory), "--dir", str(driver)]
    line += ["--control", control, "--set", "segment_file_length=128k", *words]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("requests on" in line for line in process.stderr)
        yield process
        if process.poll() != -signal.SIGKILL:  # unless the test killed it
            process.send_signal(signal.SIGTERM)
            assert process.wait(STALL_S) == 0
    finally:
        process.kill()
        process.communicate()
