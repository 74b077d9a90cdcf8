from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import captures as make
from tests.support.captures import rows_of_bytes

from mainstem import cli
from mainstem.capture import read_frames
from mainstem.capture.files import captures
from mainstem.errors import CaptureError

if TYPE_CHECKING:
    from pathlib import Path

CAPTURE = make.pcap([make.link(make.ip(make.udp(make.data_frame(bytes([i])))), make.ETHERNET) for i in range(50)])


def payloads(path: str) -> list[bytes]:
    rows = [row for batch in read_frames(path, ["payload", "frame_type"]) for row in batch.to_pylist()]
    return [row["payload"] for row in rows if row["frame_type"] == "DATA"]


def test_a_capture_from_a_pipe_is_read_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "live.pcap"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        written = pool.submit(pipe.write_bytes, CAPTURE)
        assert payloads(str(pipe)) == [bytes([i]) for i in range(50)]
        written.result()
    with pytest.raises(CaptureError, match="can be read only once"):
        captures(str(pipe))


def test_a_capture_from_standard_input_is_read_and_analyzed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(CAPTURE)))
    assert payloads("-") == [bytes([i]) for i in range(50)]
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(buffer=io.BytesIO(pa.compress(CAPTURE, codec="zstd", asbytes=True)))
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["analyze", "-", "--out", str(tmp_path / "out"), "--json"])
    assert not ended.value.code, capsys.readouterr().err
    summary = json.loads(capsys.readouterr().out)
    assert (summary["inputs"], summary["frames"]) == (["-"], {"aeron": {"DATA": 50}})


@pytest.mark.skipif(shutil.which("pzstd") is None, reason="needs pzstd")
def test_pzstd_captures_are_read(tmp_path: Path) -> None:
    plain = make.pcap(
        [make.link(make.ip(make.udp(make.data_frame(os.urandom(1400)))), make.ETHERNET) for _ in range(15_000)]
    )
    (tmp_path / "a.pcap").write_bytes(plain)
    subprocess.run(["pzstd", "-q", "-1", "-p", "2", str(tmp_path / "a.pcap")], check=True)
    packed = (tmp_path / "a.pcap.zst").read_bytes()
    assert packed.count(b"\x28\xb5\x2f\xfd") > 1, "one frame is no test"
    assert len(payloads(str(tmp_path / "a.pcap.zst"))) == 15_000


def test_frames_of_zstd_that_are_skipped_or_cut_off(tmp_path: Path) -> None:
    frames = [pa.compress(CAPTURE[at : at + 1000], codec="zstd", asbytes=True) for at in range(0, len(CAPTURE), 1000)]
    for number in (0, 15):
        skipped = bytes([0x50 + number]) + b"\x2a\x4d\x18\x04\0\0\0abcd"
        whole = b"".join(skipped + frame for frame in frames) + skipped
        assert len([row for row in rows_of_bytes(tmp_path, whole) if row["frame_type"] == "DATA"]) == 50
    cut = rows_of_bytes(tmp_path, whole[: -len(skipped) - 20])
    assert [row["text"] for row in cut if row["frame_type"] == "TRUNCATED_FILE"] != []
