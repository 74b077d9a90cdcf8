"""A program that exits without ``close()`` prints at most a ResourceWarning and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

BEGIN = """
import builtins, sys
from mainstem.aeron.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
driver = MediaDriver.launch({directory!r}, threads={threads}, dir_delete_on_shutdown=True)
"""
CLIENT = """
aeron = Aeron.connect(driver.directory)
publication = aeron.add_publication("aeron:ipc", 1)
subscription = aeron.add_subscription("aeron:ipc", 1)
"""
DUOLOGUE = """
from mainstem.duologue import serve
server = serve(
    lambda duologue: list(duologue), "127.0.0.1", {port}, base_port={port} + 2,
    directory=driver.directory,
)
"""
CYCLE = """
class Cycle: ...
cycle = Cycle()
cycle.own, cycle.rest = cycle, dict(globals())
builtins.cycle = cycle
"""


@pytest.mark.parametrize("end", ["", CYCLE], ids=["plain", "cycle"])
@pytest.mark.parametrize("body", ["", CLIENT, DUOLOGUE], ids=["driver", "client", "duologue"])
@pytest.mark.parametrize("threads", [True, False], ids=["threads", "process"])
def test_an_application_that_forgets_to_close_exits_quietly(threads: bool, body: str, end: str, tmp_path: Path) -> None:
    directory = str(tmp_path / "driver")
    code = BEGIN.format(directory=directory, threads=threads) + body.replace("{port}", str(free_port(20))) + end
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not os.path.exists(directory)


def test_unclosed_resources_emit_a_resource_warning(tmp_path: Path) -> None:
    code = BEGIN.format(directory=str(tmp_path / "driver"), threads=True) + CLIENT
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=STALL_S,
    )
    assert "<Aeron client " in done.stderr
    assert "media driver in" in done.stderr
    assert "Error" not in done.stderr
    assert "Exception ignored" not in done.stderr
