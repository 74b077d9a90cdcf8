"""Commands that listen: beyond loopback, each of them needs protection or --insecure."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import mainstem.cli
from mainstem.cli import build
from mainstem.errors import ConfigurationError

# What a command calls to listen for connections or requests of its own. Aeron's drivers listen where clients subscribe.
LISTENERS = {
    "ArchiveServer",
    "LiveServer",
    "PageServer",
    "RecordingServer",
    "TunnelClient",
    "TunnelServer",
    "listen",
    "serve",
}
# A command of each module that listens, on an address of other machines.
COMMANDS = {
    "archive": [
        "archive serve --archive-dir {out} --dir {out} --control 192.0.2.1:8010",
        "archive serve --archive-dir {out} --dir {out} --control aeron:udp?endpoint=0.0.0.0:8010",
        "archive serve --archive-dir {out} --dir {out} --set control_channel=aeron:udp?endpoint=[::]:8010",
    ],
    "echo": ["echo serve 192.0.2.1", "echo serve ::"],
    "metrics": ["metrics --listen 0.0.0.0:0", "metrics --listen [::]:0"],
    "record": [
        "record bymux://0.0.0.0:7000 --out {out}",
        "record jmux://:7000 --out {out}",
        "record aqueduct://[::]:7000 --out {out}",
    ],
    "serve": ["serve {out} --listen 0.0.0.0:0"],
    "ship": ["ship {recorder} {out} --metrics-listen 0.0.0.0:0"],
    "tunnel": [
        "tunnel serve --listen 0.0.0.0:0 --target 127.0.0.1:9",
        "tunnel connect --listen 0.0.0.0:0 --server 127.0.0.1:9",
    ],
    "web": ["web --listen 0.0.0.0:0 --dir {out}"],
}


def modules_that_listen() -> set[str]:
    """Return the modules of commands that call something in ``LISTENERS``."""
    found = set()
    for path in Path(inspect.getfile(mainstem.cli)).parent.glob("[!_]*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = {each.id if isinstance(each, ast.Name) else each.attr for each in _names(node.func)}
                if called & LISTENERS:
                    found.add(path.stem)
    return found


def _names(function: ast.expr) -> list[ast.Name | ast.Attribute]:
    return [each for each in ast.walk(function) if isinstance(each, ast.Name | ast.Attribute)]


def test_every_command_that_listens_is_tested_here() -> None:
    assert modules_that_listen() == set(COMMANDS)


def run(words: list[str]) -> None:
    build([words[0]])(words, standalone_mode=False)


@pytest.mark.parametrize("line", [line for lines in COMMANDS.values() for line in lines])
def test_beyond_loopback_a_server_needs_protection(tmp_path: Path, line: str) -> None:
    recorder = tmp_path / "recorder"
    recorder.mkdir()
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigurationError, match="--insecure"):
        run(line.format(out=tmp_path / "out", recorder=recorder).split())
    assert not list((tmp_path / "out").glob("*.rec"))


def test_an_empty_secret_does_not_open_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text(" \n\n")
    words = ["archive", "serve", "--archive-dir", str(tmp_path / "tides"), "--control", "127.0.0.1:0"]
    with pytest.raises(ConfigurationError, match="holds no credentials"):
        run([*words, "--credentials-file", str(secret)])
    for empty in ("", " ", "\n"):
        monkeypatch.setenv("MAINSTEM_ARCHIVE_CREDENTIALS", empty)
        with pytest.raises(ConfigurationError, match="MAINSTEM_ARCHIVE_CREDENTIALS is empty"):
            run(words)
