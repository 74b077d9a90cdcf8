"""Where commands write: pipes and devices are written to, and files are replaced whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from mainstem.cli.export import _output

if TYPE_CHECKING:
    from pathlib import Path


def test_a_fifo_is_written_to_and_stays_one(tmp_path: Path) -> None:
    fifo = tmp_path / "rows"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(fifo.read_bytes)
        with _output(str(fifo)) as file:
            file.write(b"rows")
        assert read.result() == b"rows"
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert os.listdir(tmp_path) == ["rows"]


def test_a_descriptor_that_a_shell_opened_is_written_to() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader:
        with _output(f"/dev/fd/{writing}") as file:
            file.write(b"rows")
        os.close(writing)
        assert reader.read() == b"rows"


def test_a_file_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")

    def fail() -> None:
        with _output(str(path)) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_bytes() == b"old"
    with _output(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["rows"]


def test_a_reader_that_has_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "mainstem", "config", "show"]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
