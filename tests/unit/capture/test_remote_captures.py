"""Captures by URL: the same rows as from a local file, compressed or not, and from a directory or a pattern."""

from __future__ import annotations

import gzip
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make
from tests.support.remote_store import RemoteStore

from mainstem.capture import files
from mainstem.capture.files import StoredPath, captures
from mainstem.errors import CaptureError
from mainstem.spark.sources.capture import CaptureBatchReader, CapturedRows, CaptureStreamReader
from mainstem.spark.sources.capture_options import parse_options
from mainstem.spark.sources.features import ReadAllAvailable
from mainstem.store import file_reader as stored_files
from mainstem.store.file_reader import StoredFileReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.types import StructType

PACKET = make.link(make.ip(make.udp(make.data_frame())), make.ETHERNET)


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Map ``remote://host/...`` to a directory whose files cannot be memory-mapped; its opener records the options."""

    def opened(url: str, options: Any = None) -> RemoteStore:
        seen.append(dict(options or {}))
        return RemoteStore(tmp_path / url.partition("remote://host")[2].lstrip("/"))

    seen: list[dict[str, str]] = []
    monkeypatch.setattr(files, "open_store", opened)
    return tmp_path


def fields() -> StructType:
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType([StructField("packet", LongType())])


def packets(path: str, **options: str) -> list[int]:
    checked = parse_options({"path": path, **options})
    reader = CaptureBatchReader(checked, CapturedRows(checked.wanted(fields())))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return [row["packet"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("packed", ["", "gzip", "zstd"])
def test_a_capture_in_a_store_has_the_rows_of_a_local_one(remote: Path, packed: str) -> None:
    data = make.pcap([PACKET] * 3000)
    if packed == "zstd":
        import pyarrow as pa

        data = pa.Codec("zstd").compress(data, asbytes=True)
    (remote / "a.pcap").write_bytes(gzip.compress(data) if packed == "gzip" else data)
    expected = packets(str(remote / "a.pcap"), indexDirectory=str(remote / "index"))
    assert len(expected) == 3000
    for options in ({}, {"partitionBytes": "65536"}, {"indexDirectory": str(remote / "index")}):
        assert packets("remote://host/a.pcap", **options) == expected


def test_directories_and_patterns_are_listed(remote: Path) -> None:
    (remote / "day").mkdir()
    for name in ("a.pcap", "b.pcapng", "notes.txt", "a.pcap.mainstem-index"):
        (remote / "day" / name).write_bytes(b"")
    assert captures("remote://host/day") == ["remote://host/day/a.pcap", "remote://host/day/b.pcapng"]
    assert captures("remote://host/day/") == captures("remote://host/day")
    assert captures("remote://host/day/a*") == ["remote://host/day/a.pcap"]
    with pytest.raises(CaptureError, match="no capture at 'remote://host/none'"):
        captures("remote://host/none")
    with pytest.raises(CaptureError, match="only the last part"):
        captures("remote://host/*/a.pcap")


def test_a_growing_capture_in_a_store_is_followed(remote: Path) -> None:
    (remote / "a.pcap").write_bytes(make.pcap([PACKET] * 5))
    options = parse_options({"path": "remote://host/a.pcap", "access_key": "topsecret"})
    reader = CaptureStreamReader(options, CapturedRows(options.wanted(fields())))

    def read(start: dict[str, int], end: dict[str, int]) -> int:
        return sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part))

    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert read(reader.initialOffset(), first) == 5
    (remote / "a.pcap").write_bytes(make.pcap([PACKET] * 9))
    second = reader.latestOffset(first, ReadAllAvailable())
    assert read(first, second) == 4
    assert "topsecret" not in f"{second}{options}"


def test_options_of_a_store_go_with_the_path_wherever_it_is_sent() -> None:
    path = StoredPath("s3://bucket/a.pcap", {"access_key": "a"})
    again = pickle.loads(pickle.dumps([path]))[0]
    assert (again, again.options, type(again)) == ("s3://bucket/a.pcap", {"access_key": "a"}, StoredPath)


def test_a_stored_file_is_read_from_any_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_files, "FIRST_BYTES", 100)
    monkeypatch.setattr(stored_files, "BLOCK_BYTES", 1000)
    data = bytes(range(256)) * 40
    (tmp_path / "a").write_bytes(data)
    with StoredFileReader(RemoteStore(tmp_path), "a") as file:
        assert file.read() == data
        for at, length in ((0, 10), (5000, 3000), (4990, 20), (10_239, 5), (20_000, 5), (99, 2)):
            file.seek(at)
            assert file.read(length) == data[at : at + length]
    with pytest.raises(FileNotFoundError):
        StoredFileReader(RemoteStore(tmp_path), "none")
