"""Shared and mapped memory is read only once: a process that changes a frame during a read spoils that frame, but no memory."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit._core import flipping

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = "0.4"
PROGRAM = [sys.executable, "-m", "tests.unit._core.flipping"]


@pytest.mark.long
@pytest.mark.parametrize("kind", flipping.READERS)
def test_frames_that_change_while_read_do_not_crash(kind: str, tmp_path: Path) -> None:
    if kind == "replay":
        flipping.write_recording(tmp_path)
        (path,) = tmp_path.glob("*.rec")
    else:
        path = tmp_path / "log"
        flipping.write_frames(path)
    with subprocess.Popen([*PROGRAM, "flip", str(path)]) as flip:
        try:
            done = subprocess.run(
                [*PROGRAM, "read", str(path), kind, SECONDS], capture_output=True, text=True, timeout=60
            )
        finally:
            flip.kill()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
