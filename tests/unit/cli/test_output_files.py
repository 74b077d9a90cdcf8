"""Where commands write: they write to pipes and devices directly, and replace files atomically."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from mainstem.cli import main
from mainstem.cli._output import output_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_fifo_is_written_in_place(tmp_path: Path) -> None:
    fifo = tmp_path / "rows"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(fifo.read_bytes)
        with output_file(str(fifo)) as file:
            file.write(b"rows")
        assert read.result() == b"rows"
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert os.listdir(tmp_path) == ["rows"]


def test_a_descriptor_that_a_shell_opened_is_written_to() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader:
        with output_file(f"/dev/fd/{writing}") as file:
            file.write(b"rows")
        os.close(writing)
        assert reader.read() == b"rows"


def test_a_file_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"old")

    def fail() -> None:
        with output_file(str(path)) as file:
            file.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_bytes() == b"old"
    with output_file(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["rows"]


@pytest.mark.parametrize("words", [["tunnel", "token"], ["echo", "key"]])
def test_a_secret_goes_to_a_new_file_or_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    def run(path: Path | str) -> object:
        with pytest.raises(SystemExit) as ended:
            main([*words, str(path)])
        return ended.value.code or 0

    fifo, file = tmp_path / "pipe", tmp_path / "secret"
    os.mkfifo(fifo)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(fifo.read_text)
        assert run(fifo) == 0
        assert len(read.result()) > 20
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert run("/dev/null") == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert run(file) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run(file) == 1
    assert "already exists" in capsys.readouterr().err
    assert run(tmp_path / "none" / "secret") == 1
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_a_reader_that_stops_early_is_not_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "mainstem", "config", "show"]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
