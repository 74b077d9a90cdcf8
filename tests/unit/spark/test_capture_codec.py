"""The ``codec`` option of ``mainstem.capture``, without a session: which frames it decodes, and what becomes of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from mainstem.aeron.protocol.frames import Data
from mainstem.errors import ConfigurationError
from mainstem.spark.sources.capture import CUT, FRAGMENT, CaptureSource

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (
                ("frame_type", "string"), ("stream_id", "integer"), ("id", "long"), ("problem", "string"), ("payload", "binary"),
            )
        ],
    }
)  # fmt: skip


def frame(payload: bytes, *, flags: int = 0xC0) -> bytes:
    header = {"session_id": 7, "stream_id": 1001, "term_id": 3, "term_offset": 64}
    return Data(**header, reserved_value=42, payload=payload, flags=flags).encode()


def capture(path: Path, *frames: bytes, snaplen: int = 262_144) -> Path:
    packets = [make.link(make.ip(make.udp(each), number=n), make.ETHERNET) for n, each in enumerate(frames)]
    path.write_bytes(make.pcap(packets, snaplen=snaplen))
    return path


def rows(path: Path, schema: StructType = SCHEMA, **options: str) -> list[tuple[Any, ...]]:
    reader: Any = CaptureSource({"path": str(path), "codec": "json", **options}).reader(schema)
    return [
        tuple(row.values())
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
        if row["frame_type"] != "PASSED_OVER"
    ]


def test_messages_of_captured_frames_are_decoded_and_other_frames_have_no_problem(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", frame(b'{"id": 5}'), make.nak_frame(), frame(b"no JSON"))
    good, nak, bad = rows(path)
    assert good == ("DATA", 1001, 5, None, None)
    assert nak == ("NAK", 1001, None, None, None)
    assert bad[:3] == ("DATA", 1001, None)
    assert bad[3]
    assert bad[4] == b"no JSON"


def test_a_fragment_is_a_problem_because_its_message_is_not_joined(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", frame(b'{"id": 5}', flags=0x80), frame(b'{"id": 6}', flags=0x40))
    assert rows(path) == [
        ("DATA", 1001, None, FRAGMENT, b'{"id": 5}'),
        ("DATA", 1001, None, FRAGMENT, b'{"id": 6}'),
    ]


def test_a_frame_that_was_captured_in_part_is_not_decoded(tmp_path: Path) -> None:
    whole = frame(b'{"id": 5}' + b" " * 87)
    ((_, stream, value, problem, payload), *_) = rows(capture(tmp_path / "a.pcap", whole, snaplen=14 + 28 + 32 + 20))
    assert (stream, value, problem) == (1001, None, CUT)
    assert payload.startswith(b'{"id": 5}')


def test_columns_of_the_codec_join_those_of_the_capture(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", frame(b'{"id": 5}'))
    codec_schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    names = CaptureSource({"path": str(path), "codec": "json", "codecSchema": codec_schema}).schema().names
    assert names[0] == "file"
    assert names[-4:] == ["problem", "id", "rescued", "payload"]


def test_options_of_a_codec_need_a_codec() -> None:
    with pytest.raises(ConfigurationError, match="codec"):
        CaptureSource({"path": "/data", "codec.delimiter": ";"}).schema()
