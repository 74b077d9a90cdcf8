"""The state of a log file: its creation time does not change when it is written."""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING

import pytest

from mainstem.aeron.tools.log_state import birth_ms

if TYPE_CHECKING:
    from pathlib import Path


def born(path: Path) -> int | None:
    with path.open("rb") as file:
        return birth_ms(file.fileno(), os.fstat(file.fileno()))


def test_a_file_keeps_the_time_of_its_creation(tmp_path: Path) -> None:
    path = tmp_path / "1.logbuffer"
    before = time.time_ns() // 1_000_000
    path.write_bytes(bytes(8192))
    created = born(path)
    if created is None:
        pytest.skip("this file system does not keep when a file was created")
    assert before - 1000 <= created <= time.time_ns() // 1_000_000
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0] = 1
        mapped.flush()
    os.utime(path, (time.time() + 60, time.time() + 60))
    assert born(path) == created
