"""Logs of commands: text for people, JSON for collectors."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mainstem.cli import _process

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def own_handlers() -> Iterator[None]:
    """Remove pytest's log handlers, as if in a process of its own."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)


def test_json_log_lines_have_the_fields_of_text_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(_process.VARIABLE, "JSON")
    with own_handlers():
        _process.begin()
        _process.configure(logging.INFO)
        _process.say('listening on "tides"\nstream 7')
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("mainstem.aeron").exception("went %s", "wrong")
        logging.getLogger("mainstem.aeron").debug("left out")
    said, logged = map(json.loads, capsys.readouterr().err.splitlines())
    assert (said["level"], said["logger"]) == ("INFO", "mainstem.cli")
    assert said["message"] == 'listening on "tides"\nstream 7'
    assert (logged["level"], logged["logger"], logged["message"]) == ("ERROR", "mainstem.aeron", "went wrong")
    assert "ValueError: no" in logged["exception"]
    assert logged["process"] == os.getpid()
    assert logged["time"].endswith("+00:00")


def test_text_is_the_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(_process.VARIABLE, raising=False)
    with own_handlers():
        _process.begin()
        _process.configure(logging.INFO)
        _process.say("listening")
        logging.getLogger("mainstem.aeron").info("began")
    said, logged = capsys.readouterr().err.splitlines()
    assert said == "listening"
    assert logged.endswith("INFO mainstem.aeron: began")


@pytest.mark.parametrize(("options", "variable"), [(["--json-logs"], ""), ([], "json")], ids=["option", "variable"])
def test_command_errors_are_json_objects(options: list[str], variable: str) -> None:
    environment = os.environ | {_process.VARIABLE: variable, "AERON_DIR": "/nowhere/at/all"}
    command = [sys.executable, "-m", "mainstem", *options, "stat"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert json.loads(line)["level"] == "ERROR"
    assert "/nowhere/at/all" in json.loads(line)["message"]


def test_an_unknown_log_format_is_refused() -> None:
    environment = os.environ | {_process.VARIABLE: "xml"}
    command = [sys.executable, "-m", "mainstem", "stat"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 1
    assert ended.stderr == "mainstem: MAINSTEM_LOG_FORMAT: unknown log format 'xml'; choose one of text, json\n"
