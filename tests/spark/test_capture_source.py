"""``mainstem.capture`` in Spark: batch and streaming, one file and a directory, projections, problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support import captures as make
from tests.support.captures import rows_of
from tests.support.packet_accounting import accounted
from tests.support.read_limits import limits

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SERVER = 9000
REASONS = ("not IP", "of another IP protocol than UDP or TCP", "TCP of other ports", "UDP without Aeron's frames")


def traffic(count: int, *, first: int = 0) -> list[bytes]:
    """Return Aeron datagrams, unfragmented and fragmented, between segments of a bymux connection."""
    packets = []
    if first == 0:
        packets.append(make.ip(make.tcp(sequence=999, to=SERVER, flags=make.TCP_SYN), protocol=6))
    for n in range(first, first + count):
        packets.append(make.ip(make.udp(make.data_frame(bytes([n % 251]) * (n % 90), at=n * 128)), number=n))
        datagram = make.udp(make.data_frame(bytes(1968), session=8, at=n * 2016))
        packets.append(make.ip(datagram[:1480], more=True, number=n))
        packets.append(make.ip(make.tcp(b"\x20\x05\x03abc", sequence=1000 + 6 * n, to=SERVER), protocol=6))
        packets.append(make.ip(datagram[1480:], fragment=1480, number=n))
    return [make.link(packet, make.ETHERNET) for packet in packets]


def as_rows(frame: Any) -> list[tuple[Any, ...]]:
    columns = [
        "packet",
        "frame_index",
        "protocol",
        "frame_type",
        "session_id",
        "term_offset",
        "stream_offset",
        "length",
    ]
    own = frame.where("not frame_type <=> 'PASSED_OVER'")
    return sorted(tuple(row) for row in own.select("file", *columns).collect())


def expected(path: Path, **wanted: Any) -> list[tuple[Any, ...]]:
    columns = ["file", "packet", "frame_index", "protocol", "frame_type", "session_id", "term_offset", "stream_offset"]
    rows = rows_of(path, bymux_ports=(SERVER,), **wanted)
    return sorted(tuple(row.get(name) for name in [*columns, "length"]) for row in rows)


def reader(spark: SparkSession, **options: Any) -> Any:
    from mainstem.spark import register

    register(spark)
    return spark.read.format("mainstem.capture").options(bymuxPorts=SERVER, **options)


@pytest.mark.long
def test_a_capture_cut_into_many_partitions_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(make.pcap(traffic(2000)))
    whole = expected(path)
    assert len(whole) == 2000 * 3 + 1
    frame = reader(spark, partitionBytes=200_000).load(str(path))
    assert as_rows(frame) == whole
    assert (tmp_path / "one.pcap.mainstem-index").exists()


def test_a_schema_is_a_projection_and_the_types_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(make.pcap(traffic(50)))
    frame = reader(spark).schema("length int, dst string, payload binary").load(str(path))
    row = frame.where("length = 9").first()
    assert (row["length"], row["dst"], bytes(row["payload"])) == (9, "10.0.0.2", bytes([9]) * 9)
    with pytest.raises(Exception, match="no column 'depth'"):
        reader(spark).schema("depth int").load(str(path)).count()
    with pytest.raises(Exception, match="of type int, not bigint"):
        reader(spark).schema("length bigint").load(str(path)).count()


def test_a_directory_with_bad_files_is_read_and_they_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    data = make.pcap(traffic(20))
    (tmp_path / "a.pcap").write_bytes(data)
    (tmp_path / "b.pcap1").write_bytes(data[:-3])
    (tmp_path / "c.pcapng").write_bytes(b"nothing of the kind")
    (tmp_path / "notes.txt").write_text("not a capture")
    frame = reader(spark).load(str(tmp_path))
    problems = {
        (row["file"].rpartition("/")[2], row["frame_type"]) for row in frame.where("protocol = 'problem'").collect()
    }
    assert problems == {
        ("a.pcap", "PASSED_OVER"), ("b.pcap1", "PASSED_OVER"), ("b.pcap1", "TRUNCATED_FILE"),
        ("c.pcapng", "UNREADABLE_FILE"), ("b.pcap1", "LOST_FRAGMENT"),
    }  # fmt: skip
    assert frame.where("protocol = 'aeron'").count() == 40 + 39


def test_invalid_options_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    for options, words in (
        ({"aeronPorts": "70000"}, "is not a port"),
        ({"aeronPort": "1"}, "no option 'aeronport'"),
        ({"payload": "yes"}, "must be true or false"),
    ):
        with pytest.raises(Exception, match=words):
            reader(spark, **options).load(str(tmp_path / "none.pcap")).count()
    with pytest.raises(Exception, match="no capture at"):
        reader(spark).load(str(tmp_path / "none.pcap")).count()


@pytest.mark.long
def test_a_stream_over_a_growing_capture_has_the_rows_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    directory, out, state = tmp_path / "in", str(tmp_path / "out"), str(tmp_path / "state")
    directory.mkdir()
    path, later = directory / "a.pcap", directory / "b.pcap"
    data = make.pcap(traffic(300))
    reader(spark)

    def catch_up() -> None:
        stream = (
            spark.readStream.format("mainstem.capture")
            .options(bymuxPorts=SERVER, **limits(maxBytesPerTrigger="200000"))
            .load(str(directory))
        )
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", state)
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(120)

    for size in (len(data) // 3 + 5, len(data) // 2 + 3, len(data)):
        path.write_bytes(data[:size])
        if size == len(data):
            later.write_bytes(make.pcap(traffic(100)))
        catch_up()
    assert as_rows(spark.read.parquet(out)) == sorted(expected(path) + expected(later))


def mixed(count: int) -> list[bytes]:
    """Return ``traffic`` mixed with packets that produce no rows, each for a different reason."""
    others = [
        bytes(12) + b"\x08\x06" + bytes(28),
        make.link(make.ip(bytes(20), protocol=1), make.ETHERNET),
        make.link(make.ip(make.tcp(b"x", to=81), protocol=6), make.ETHERNET),
        make.link(make.ip(make.udp(b"something else" * 9)), make.ETHERNET),
    ]
    return [packet for n, each in enumerate(traffic(count)) for packet in (each, *others[: n % 5])]


@pytest.mark.long
def test_every_packet_is_a_row_or_counted_wherever_a_file_is_split(spark: SparkSession, tmp_path: Path) -> None:
    from mainstem.spark.tables import problems

    path, packets = tmp_path / "one.pcap", mixed(700)
    path.write_bytes(make.pcap(packets))
    reasons = {
        row["text"]: row["length"]
        for row in rows_of(path, bymux_ports=(SERVER,), count_skipped=True)
        if row["frame_type"] == "PASSED_OVER"
    }
    assert set(reasons) == {*REASONS, "IP fragments that completed no packet"}
    for size in (50_000, 100 << 20):
        frame = reader(spark, partitionBytes=size).load(str(path))
        assert accounted(
            row.asDict() for row in frame.select("packet", "frame_type", "length", "text").collect()
        ) == len(packets)
        rows = problems(frame).collect()
        assert {row["text"]: row["packets"] for row in rows} == reasons
        assert len(rows) == len(reasons)
        assert {row["kind"] for row in rows} == {"PASSED_OVER"}


@pytest.mark.long
def test_packets_are_rows_or_counted_once_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    directory, out, state = tmp_path / "in", str(tmp_path / "out"), str(tmp_path / "state")
    directory.mkdir()
    path, packets = directory / "a.pcap", mixed(300)
    data = make.pcap(packets)
    reader(spark)
    for size in (len(data) // 3 + 5, len(data)):
        path.write_bytes(data[:size])
        stream = spark.readStream.format("mainstem.capture").options(bymuxPorts=SERVER)
        writer = (
            stream.options(**limits(maxBytesPerTrigger="60000"))
            .load(str(directory))
            .writeStream.format("parquet")
            .option("checkpointLocation", state)
        )
        assert writer.trigger(availableNow=True).start(out).awaitTermination(120)
    rows = [row.asDict() for row in spark.read.parquet(out).collect()]
    assert accounted(rows) == len(packets)
    passed = [row["packet"] for row in rows if row["frame_type"] == "PASSED_OVER"]
    assert len(passed) == len(set(passed)) > len(REASONS)
