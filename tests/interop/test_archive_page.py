"""The how-to pages about Aeron Archive: their programs and commands run against the reference archive."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop.java_archive import JavaArchive
from tests.support import java
from tests.support.doc_runner import ROOT, blocks
from tests.support.ports import free_port
from tests.support.waiting import wait_for

import mainstem
from mainstem import archive

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop]


def shell(commands: str) -> str:
    """Return what bash prints for these commands, none of which may fail."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    line = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(
        line, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_programs_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java.require_java()
    page = (ROOT / "docs" / "how-to" / "archive-client.md").read_text()
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm") as directory,
        JavaArchive(tmp_path / "archive", Path(directory) / "aeron", has_driver=True) as served,
    ):
        monkeypatch.setenv("AERON_DIR", served.directory)
        names: dict[str, object] = {"__name__": "__main__"}
        found = [each for each in blocks(page) if Path(__file__).name in each.how]
        code = [each.code for each in found if each.language == "python"]
        assert len(code) == 8
        for text in code:
            text = text.replace("aeron:udp?endpoint=localhost:8010", served.control)
            text = text.replace("localhost:8010", served.control.partition("endpoint=")[2])
            exec(compile(text, "page", "exec"), names)
        (commands,) = (each.code for each in found if each.language == "sh")
        shell(commands.replace("localhost:8010", served.control.partition("endpoint=")[2]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 aeron:ipc ")
    assert lines[1:1001] == [f"tide {number}" for number in range(1000)]
    assert lines[1001:] == ["1000", "0"]


@pytest.mark.long
def test_a_java_archive_is_replaced_as_the_page_says(tmp_path: Path, start_driver: DriverFactory) -> None:
    java.require_java()
    driver, directory = start_driver("mainstem").directory, tmp_path / "archive"
    with (
        JavaArchive(directory, driver, has_driver=False) as served,
        mainstem.connect(driver) as aeron,
        archive.connect(served.control, aeron=aeron) as client,
    ):
        client.start_recording("aeron:ipc?term-length=64k", 1001)
        with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001) as publication:
            for number in range(3000):
                publication.send(b"tide %d" % number, timeout=20.0)
            next(client.events(timeout=20.0))
            wait_for(lambda: client.max_recorded_position(0) == publication.position)
    port = free_port()
    page = (ROOT / "docs" / "how-to" / "replace-java-archive.md").read_text()
    page = page.replace("/var/lib/aeron/archive", str(directory)).replace("/dev/shm/aeron", str(driver))
    before, serve, check, tool, checksums = (
        each.code.replace("localhost:8010", f"localhost:{port}")
        for each in blocks(page)
        if Path(__file__).name in each.how
    )
    assert " 1001 " in shell(before)
    program = [sys.executable, "-m", *shlex.split(serve)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"requests on 127.0.0.1:{port}" in process.stderr.readline()
            assert shell(check).splitlines()[-1] == "tide 2999"
        finally:
            process.terminate()
    assert process.returncode == 0
    words = shlex.split(tool)
    done = java.run(java.ARCHIVE_TOOL, *words[words.index(java.ARCHIVE_TOOL) + 1 :])
    assert done.stdout.count("OK") == 1
    shell(checksums)
    done = java.run(java.ARCHIVE_TOOL, directory, "verify", "-a", "-checksum", "org.agrona.checksum.Crc32c")
    assert done.stdout.count("OK") == 1
    with JavaArchive(directory, driver, has_driver=False, replay_checksum="org.agrona.checksum.Crc32c") as served:
        replay = f"mainstem archive replay 0 --control {served.control.partition('endpoint=')[2]} --dir {driver}"
        assert shell(replay).count("\n") == 3000
