"""Java's and Mainstem's archives record and replay on Mainstem's driver: local streams through spies and IPC, and remote ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 500
SMALL = "term-length=64k"


@pytest.mark.parametrize("kind", ["java", "mainstem"])
def test_archive_recordings_are_replayed_as_sent(start_driver: DriverFactory, tmp_path: Path, kind: str) -> None:
    java.require_java()
    driver = start_driver("mainstem")
    spied, tagged, remote, first, second = (f"aeron:udp?endpoint=localhost:{free_port()}" for _ in range(5))
    group = f"aeron:udp?endpoint=224.20.30.39:{free_port()}|interface=localhost"
    dynamic = "aeron:udp?control=localhost:0|control-mode=dynamic|tags=70,71"
    cases = [
        (f"aeron:ipc?{SMALL}", "local aeron:ipc", "aeron:ipc"),
        (f"{spied}|{SMALL}|ssc=true", f"local {spied}", "aeron:ipc"),
        (f"{tagged}|{SMALL}|ssc=true|tags=68,69", "local aeron:udp?tags=68", first),
        (f"{dynamic}|{SMALL}|ssc=true", "local aeron:udp?tags=70", "aeron:ipc"),
        (f"{group}|{SMALL}|ssc=true", f"local {group}", "aeron:ipc"),
        (f"{remote}|{SMALL}", f"remote {remote}", second),
    ]
    arguments = [text for case in cases for text in case]
    with ExitStack() as stack:
        directory: Path | str = tmp_path / "archive"
        if kind == "mainstem":
            control = f"aeron:udp?endpoint=localhost:{free_port()}"
            stack.enter_context(mainstem_archive(tmp_path / "archive", driver.directory, control))
            directory = ""
        done = java.run("RecordOnDriver", driver.directory, directory, free_port(), COUNT, *arguments)
    assert done.returncode == 0, done.stderr
    for case, line in zip(cases, done.stdout.splitlines(), strict=True):
        sent, replayed, messages = map(int, line.split())
        assert (case, replayed, messages) == (case, sent, COUNT)
