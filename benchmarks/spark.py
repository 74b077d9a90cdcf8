"""How fast does Spark turn recordings into rows, and how long does a message take from its offer to its row?

``python benchmarks/spark.py [--json] [--quick] [--pairs N] [--only scan,json,stream,live,latency]``.

The scan is compared with Spark's own readers: of the same rows in Parquet (with payloads that do not compress), and of the same
bytes through binaryFile. JSON messages, decoded as ``mainstem ingest`` does, are compared with Spark's reader of the same lines.
Live queries share the cores with their own publisher, driver and recorder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.options import parse_options
from harness.recordings import TERM, make
from harness.report import Report

from mainstem import MediaDriver
from mainstem.recording import Recorder, open_recordings
from mainstem.spark import create_session, lag
from mainstem.spark.lags import Lag
from mainstem.spark.session import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE, QUICK_SIZE = 1 << 30, 256 << 20
# A JVM compiles hot code while it is new: on two cores the first eight runs of each reader get faster. How well it compiles is
# partly chance, so the scan is measured in several sessions.
WARM_UPS = 8
JSON_SIZE, QUICK_JSON_SIZE, JSON_BYTES = 256 << 20, 32 << 20, 1024
JSON_SCHEMA = (
    "sensor bigint, site string, at string, level double, pressure double, valid boolean,"
    " place struct<lat: double, lon: double>, remark string"
)
SCAN_SESSIONS = 3
FRAME = 288
# The pipeline's goals.
SCAN_GOAL, PARQUET_GOAL, JSON_GOAL = 1.3, 1.2, 1.5
CATCH_UP_GOAL = 700_000
LIVE_GOAL = 300_000
LATENCY_GOAL_S = 1.0
LIVE_SECONDS, QUICK_SECONDS = 30, 8
LATENCY_RATE = 50_000
CHANNEL = "aeron:udp?endpoint=127.0.0.1:24517|term-length=64m|rcv-wnd=2m|so-rcvbuf=2m|so-sndbuf=2m"
PEERS = Path(__file__).parent / "peers"


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def noop(df: Any) -> Callable[[], object]:
    return lambda: df.write.format("noop").mode("overwrite").save()


def prepare(spark: Any, directory: Path, report: Report) -> None:
    """Create the recording, and the same rows in Parquet, in files of the size that suits Spark's own sources best."""
    rows = make(directory / "recordings", report.options.either(SIZE, QUICK_SIZE))
    recording = (
        spark.read.format("mainstem.recording").option("partitionBytes", "128m").load(str(directory / "recordings"))
    )
    recording.write.parquet(str(directory / "rows"))
    assert recording.count() == rows == spark.read.parquet(str(directory / "rows")).count()


def scan(spark: Any, directory: Path, report: Report) -> None:
    """Read the same rows from a recording and from Parquet, pair by pair."""
    path = directory / "recordings"
    recording = spark.read.format("mainstem.recording").load(str(path))
    parquet = spark.read.parquet(str(directory / "rows"))
    rows = recording.count()
    for df in report.options.either(WARM_UPS, 1) * (recording, parquet):
        noop(df)()
    megabytes = rows * FRAME / 1e6
    for _ in range(report.options.pairs):
        ours, theirs = seconds(noop(recording)), seconds(noop(parquet))
        report.pair("scan, all columns, 256 B", peer="Parquet", ours=rows / ours, theirs=rows / theirs, goal=SCAN_GOAL)
        report.figure("recording: scan [rows/s]", rows / ours)
        report.figure("recording: scan [MB/s]", megabytes / ours)
        report.figure("Parquet: scan [rows/s]", rows / theirs)


def other_scans(spark: Any, directory: Path, report: Report) -> None:
    """Scan the same recording as bytes only, with few columns, as a count, and into Parquet."""
    path = directory / "recordings"
    recording = spark.read.format("mainstem.recording").load(str(path))
    parquet = spark.read.parquet(str(directory / "rows"))
    files = spark.read.format("binaryFile").load(str(path / "*.rec"))
    narrow = spark.read.schema("position bigint, length int").format("mainstem.recording").load(str(path))
    rows = recording.count()
    megabytes = rows * FRAME / 1e6
    for df in report.options.either(WARM_UPS, 1) * (recording, narrow):
        noop(df)()
    for _ in range(report.options.pairs):
        ours, whole = seconds(noop(recording)), seconds(lambda: files.selectExpr("sum(length(content))").collect())
        report.pair("scan, bytes/s", peer="binaryFile", ours=1 / ours, theirs=1 / whole)
        report.figure("binaryFile: the same bytes [MB/s]", megabytes / whole)
        report.figure("recording: count() [rows/s]", rows / seconds(recording.count))
        report.figure("recording: position and length only [rows/s]", rows / seconds(noop(narrow)))
    for _ in range(report.options.pairs):
        ours = seconds(lambda: recording.write.mode("overwrite").parquet(str(directory / "copy")))
        theirs = seconds(lambda: parquet.write.mode("overwrite").parquet(str(directory / "copy")))
        report.pair("to Parquet", peer="Parquet", ours=rows / ours, theirs=rows / theirs, goal=PARQUET_GOAL)
        report.figure("recording: to Parquet [rows/s]", rows / ours)
        report.figure("recording: to Parquet [MB/s]", megabytes / ours)


def reading(number: int) -> bytes:
    """Return a message of 1 KiB: a sensor reading, padded with a remark."""
    value = {
        "sensor": number,
        "site": f"quay-{number % 40}",
        "at": f"2026-03-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00",
        "level": number * 0.25,
        "pressure": 1013.25 + number % 17,
        "valid": number % 3 != 0,
        "place": {"lat": 53.5 + number % 9 / 10, "lon": 9.9 + number % 7 / 10},
        "remark": "",
    }
    value["remark"] = "x" * (JSON_BYTES - len(json.dumps(value)))
    return json.dumps(value).encode()


def decoded(spark: Any, directory: Path, report: Report) -> None:
    """Read the same JSON as typed rows from a recording's messages and from the lines of a file."""
    path, lines = directory / "json-recordings", directory / "lines.json"
    rows = make(path, report.options.either(JSON_SIZE, QUICK_JSON_SIZE), JSON_BYTES, text=reading)
    per_term = rows // (report.options.either(JSON_SIZE, QUICK_JSON_SIZE) // TERM)
    term = b"".join(reading(number) + b"\n" for number in range(per_term))
    with lines.open("wb") as file:
        for _ in range(rows // per_term):
            file.write(term)
    recording = (
        spark.read.format("mainstem.recording")
        .option("codec", "json")
        .schema(f"{JSON_SCHEMA}, problem string, rescued string, payload binary")
        .load(str(path))
    )
    theirs_of = spark.read.schema(JSON_SCHEMA).json(str(lines))
    assert recording.where("problem is null").count() == rows == theirs_of.where("level is not null").count()
    for df in report.options.either(WARM_UPS, 1) * (recording, theirs_of):
        noop(df)()
    for _ in range(report.options.pairs):
        ours, theirs = seconds(noop(recording)), seconds(noop(theirs_of))
        report.pair(
            "1 KiB JSON to typed rows", peer="spark.read.json", ours=rows / ours, theirs=rows / theirs, goal=JSON_GOAL
        )
        report.figure("recording: JSON [rows/s]", rows / ours)
        report.figure("spark.read.json [rows/s]", rows / theirs)


def stream(spark: Any, directory: Path, report: Report) -> None:
    """Run a streaming query that starts far behind."""
    path = directory / "recordings"
    if not path.exists():
        make(path, report.options.either(SIZE, QUICK_SIZE))
    for number in range(report.options.pairs + 1):
        source = spark.readStream.format("mainstem.recording").option("maxBytesPerTrigger", "256m").load(str(path))
        writer = source.writeStream.format("noop").option("checkpointLocation", str(directory / f"caught-up-{number}"))
        started = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = time.perf_counter() - started
        rows = sum(p["numInputRows"] for p in query.recentProgress)
        if number:
            report.pair("catching up, 256 B", peer="the goal", ours=rows / took, theirs=CATCH_UP_GOAL, goal=1.0)
            report.figure("catching up [rows/s]", rows / took)


@contextmanager
def recorded(directory: Path, rate: int, run_seconds: float) -> Iterator[tuple[Path, Any]]:
    """Run a driver and a recorder. Yield the recordings' directory and a function that starts a publisher."""
    path = directory / f"live-{rate}"
    Recorder(path).close()
    with MediaDriver.launch() as driver:
        record = [sys.executable, "-m", "mainstem", "record", CHANNEL, "--stream", "1001", "--out", str(path)]
        recorder = subprocess.Popen([*record, "--dir", driver.directory], stderr=subprocess.DEVNULL)
        try:
            arguments = [driver.directory, CHANNEL, "1001", str(rate), str(run_seconds), "256"]
            started: list[Any] = []

            def publish() -> Any:
                """Start the publisher. Call this once the query is ready."""
                command = [sys.executable, str(PEERS / "paced_stream.py"), *arguments]
                started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                return started[-1]

            try:
                yield path, publish
            finally:
                for publisher in started:
                    publisher.communicate("\n")
        finally:
            recorder.terminate()
            recorder.wait()


def is_recorded(path: Path, position: int) -> bool:
    readers = open_recordings(path)
    end = max((reader.end_position() for reader in readers), default=0)
    for reader in readers:
        reader.close()
    return end >= position


def live(spark: Any, directory: Path, report: Report) -> None:
    """Publish at the goal's rate, and measure how far the query is behind when the publisher ends."""
    with recorded(directory, LIVE_GOAL, report.options.either(LIVE_SECONDS, QUICK_SECONDS)) as (path, publish):
        source = spark.readStream.format("mainstem.recording").load(str(path))
        query = source.writeStream.format("noop").option("checkpointLocation", str(directory / "live")).start()
        query.processAllAvailable()
        publisher = publish()
        _, published, position, took = publisher.stdout.readline().split()
        behind = lag(query, path)
        if not behind:
            # If no micro-batch has ended, the query is behind by everything.
            behind = [Lag(0, 0, int(position), float(took))]
        unrecorded = int(position) - behind[0].recorded_position
        query.processAllAvailable()
        while not is_recorded(path, int(position)):
            time.sleep(0.01)
        query.processAllAvailable()
        rows = sum(p["numInputRows"] for p in query.recentProgress)
        query.stop()
    rate = int(published) / float(took)
    report.pair("live rate kept, 256 B", peer="the goal", ours=rate, theirs=LIVE_GOAL, goal=0.99)
    report.figure("live: published [messages/s]", rate)
    report.figure("live: rows missing in the end", int(published) - rows)
    report.figure("live: not recorded yet at the end [MB]", unrecorded / 1e6)
    report.figure("live: query behind at the end [s]", behind[0].seconds or 0.0)
    report.figure("live: query behind at the end [MB]", behind[0].bytes / 1e6)


def latency(spark: Any, directory: Path, report: Report) -> None:
    """Measure the time from the offer of a message until a sink receives its row."""
    import numpy as np

    taken: list[Any] = []

    def look(batch: Any, _: int) -> None:
        stamps = batch.selectExpr("substring(payload, 1, 8) as stamp").toArrow()["stamp"].combine_chunks()
        now = time.time_ns()
        if len(stamps):
            offered = np.frombuffer(stamps.buffers()[2], "<i8", len(stamps), 0)
            taken.append((now - offered) / 1e9)

    with recorded(directory, LATENCY_RATE, report.options.either(LIVE_SECONDS, QUICK_SECONDS)) as (path, publish):
        source = spark.readStream.format("mainstem.recording").load(str(path))
        narrow = source.select("payload").writeStream.foreachBatch(look)
        query = narrow.option("checkpointLocation", str(directory / "latency")).start()
        query.processAllAvailable()
        publish().stdout.readline()
        query.stop()
    warm = np.concatenate(taken[len(taken) // 4 :])
    median, late = np.percentile(warm, [50, 99])
    report.pair(
        "offer to row, p50, 50,000 messages/s",
        peer="the goal",
        ours=median,
        theirs=LATENCY_GOAL_S,
        goal=1.0,
        smaller_is_better=True,
    )
    report.figure("offer to row, p50 [ms]", median * 1e3)
    report.figure("offer to row, p99 [ms]", late * 1e3)


def main() -> None:
    options = parse_options(__doc__, ("scan", "json", "stream", "live", "latency"))
    parts: dict[str, list[Any]] = {
        "scan": [prepare, *options.either(SCAN_SESSIONS, 1) * [scan], other_scans],
        "json": [decoded],
        "stream": [stream],
        "live": [live],
        "latency": [latency],
    }
    report = Report(options=options)
    with tempfile.TemporaryDirectory(prefix="mainstem-bench-") as directory:
        config = {"spark.driver.memory": "2g", "spark.local.dir": directory, "spark.sql.shuffle.partitions": "2"}
        # Rows are counted from the progress of all micro-batches.
        config["spark.sql.streaming.numRecentProgressUpdates"] = "100000"
        try:
            for part in (part for name in options.parts for part in parts[name]):
                spark = create_session("benchmark", config=config)
                try:
                    part(spark, Path(directory), report)
                finally:
                    stop(spark)
        finally:
            # Report the results measured so far even if a later part fails.
            report.print()


if __name__ == "__main__":
    main()
