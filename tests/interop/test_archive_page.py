"""The how-to page about Aeron Archive: its programs run against the reference's archive."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.interop.java_archive import JavaArchive
from tests.support import java
from tests.support.doc_runner import ROOT, blocks

pytestmark = [pytest.mark.interop]


def test_the_programs_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java.require_java()
    page = (ROOT / "docs" / "how-to" / "archive-client.md").read_text()
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm") as folder,
        JavaArchive(tmp_path / "archive", Path(folder) / "aeron", has_driver=True) as served,
    ):
        monkeypatch.setenv("AERON_DIR", served.directory)
        names: dict[str, object] = {"__name__": "__main__"}
        code = [each.code for each in blocks(page) if Path(__file__).name in each.how]
        assert len(code) == 8
        for text in code:
            text = text.replace("aeron:udp?endpoint=localhost:8010", served.control)
            text = text.replace("localhost:8010", served.control.partition("endpoint=")[2])
            exec(compile(text, "page", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 aeron:ipc ")
    assert lines[1:1001] == [f"tide {number}" for number in range(1000)]
    assert lines[1001:] == ["1000", "0"]
