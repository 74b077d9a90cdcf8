"""What do remote recordings cost: through ``mainstem serve``, in an object store, while they are shipped, and by the thousand?

``python benchmarks/remote_recordings.py [--json] [--quick] [--pairs N] [--only serve,s3,shipping,planning,live]``.

A scan through a server is compared with the scan of the mapped files, and a scan in an object store with pyarrow's scan of the
same rows in Parquet in the same store. ``MAINSTEM_S3_SERVER`` is a command with ``{directory}`` and ``{port}`` that starts an S3
server. The default is moto, which is slow itself. Client and server share the host's cores.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.options import parse_options
from harness.processes import free_port
from harness.recordings import make
from harness.report import Report

import mainstem
from mainstem import MediaDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE, QUICK_SIZE = 1 << 30, 256 << 20
SCAN_GOAL = 0.7
SHIPPING_GOAL = 0.97
LIVE_GOAL = 1 / 1.3
PLAN_GOAL_S, IDLE_GOAL_S = 5.0, 0.2
RECORDINGS, GROWING, FILES = 10_000, 100, 1024
RECORD_SECONDS, QUICK_SECONDS = 6, 3
# Per second, and more than a recorder can take, so that the recorder limits the publisher, not the publisher's own rate.
MOST_MESSAGES = 100_000_000
PEERS = Path(__file__).parent / "peers"
KEYS = {"access_key": "S3RVER", "secret_key": "S3RVER", "region": "us-east-1", "scheme": "http"}


def scan_seconds(location: Path | str, options: dict[str, str] | None = None) -> tuple[float, int]:
    """Scan every row of every column as Arrow batches. Return the seconds and the number of rows."""
    started = time.perf_counter()
    with mainstem.open_recordings(location, options) as recordings:
        rows = sum(batch.num_rows for batch in recordings.scan().to_batches())
    return time.perf_counter() - started, rows


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve a directory with ``mainstem serve``. Yield the URL."""
    command = [sys.executable, "-m", "mainstem", "serve", str(path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(word for word in server.stderr.readline().split() if word.startswith("http")).rstrip(",")
        finally:
            server.terminate()


@contextmanager
def s3_server(directory: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with a bucket ``tides``. Yield the options for a client."""
    port = free_port(socket.SOCK_STREAM)
    moto = f"{sys.executable} -m moto.server -p {{port}}"
    command = os.environ.get("MAINSTEM_S3_SERVER", moto).format(directory=directory, port=port)
    options = KEYS | {"endpoint_override": f"127.0.0.1:{port}"}
    with subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port, server)
            from pyarrow import fs

            fs.S3FileSystem(**options, allow_bucket_creation=True).create_dir("tides")
            yield options
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, "the server has ended"
            time.sleep(0.2)
        else:
            return


def serve(directory: Path, report: Report) -> None:
    path = directory / "rec"
    size = report.options.either(SIZE, QUICK_SIZE)
    rows = make(path, size)
    with served(path) as url:
        for location in (path, url):
            assert scan_seconds(location)[1] == rows
        for _ in range(report.options.pairs):
            (mapped, _), (fetched, _) = scan_seconds(path), scan_seconds(url)
            report.pair("scan over serve", peer="mapped", ours=rows / fetched, theirs=rows / mapped, goal=SCAN_GOAL)
            report.figure("mapped: scan [MB/s]", size / mapped / 1e6)
            report.figure("serve: scan [MB/s]", size / fetched / 1e6)


def s3(directory: Path, report: Report) -> None:
    import obstore
    import pyarrow.parquet as pq
    from obstore.store import S3Store
    from pyarrow import dataset, fs

    path = directory / "rec-s3"
    size = report.options.either(SIZE, QUICK_SIZE)
    rows = make(path, size)
    with s3_server(directory / "s3") as options:
        files = fs.S3FileSystem(**options)
        with mainstem.open_recordings(path) as recordings:
            pq.write_table(recordings.scan().to_arrow(), directory / "rows.parquet")
        store = S3Store(
            "tides", access_key_id=options["access_key"], secret_access_key=options["secret_key"],
            region=options["region"], endpoint=f"http://{options['endpoint_override']}",
            client_options={"allow_http": True, "timeout": "300s"},
        )  # fmt: skip
        # In one request, because some small servers do not support multipart uploads.
        obstore.put(store, "rows.parquet", directory / "rows.parquet", use_multipart=False)
        for file in path.iterdir():
            if file.stat().st_size:
                obstore.put(store, f"x/{file.name}", file, use_multipart=False)

        def parquet_seconds() -> float:
            started = time.perf_counter()
            source = dataset.dataset("tides/rows.parquet", filesystem=files)
            assert sum(batch.num_rows for batch in source.to_batches()) == rows
            return time.perf_counter() - started

        assert scan_seconds("s3://tides/x", options)[1] == rows
        parquet_seconds()
        for _ in range(report.options.pairs):
            (ours, _), theirs = scan_seconds("s3://tides/x", options), parquet_seconds()
            report.pair("scan in S3", peer="Parquet in S3", ours=rows / ours, theirs=rows / theirs, goal=SCAN_GOAL)
            report.figure("recording in S3: scan [MB/s]", size / ours / 1e6)
            report.figure("Parquet in S3: scan [MB/s]", size / theirs / 1e6)


def recorded_rate(directory: Path, seconds: int, *, ships: bool) -> float:
    """Return the messages per second that a recorder takes from a publisher that offers more."""
    out, store = directory / "shipping" / "rec", directory / "shipping" / "store"
    with MediaDriver.launch() as driver:
        record = [sys.executable, "-m", "mainstem", "record", "aeron:ipc", "-s", "1001", "-o", str(out)]
        record += ["--dir", driver.directory, *(["--ship-to", str(store), "--flush-interval", "1s"] if ships else [])]
        recorder = subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        publisher = subprocess.run(
            [
                sys.executable, str(PEERS / "paced_stream.py"), driver.directory, "aeron:ipc", "1001",
                str(MOST_MESSAGES), str(seconds), "256",
            ],
            input="\n", stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        recorder.terminate()
        recorder.wait()
    shutil.rmtree(directory / "shipping")
    _, published, _, took = publisher.stdout.split()
    return int(published) / float(took)


def shipping(directory: Path, report: Report) -> None:
    seconds = report.options.either(RECORD_SECONDS, QUICK_SECONDS)
    recorded_rate(directory, seconds, ships=True)
    for pair in range(report.options.pairs):
        # Alternate the order.
        order = (True, False) if pair % 2 else (False, True)
        rates = {ships: recorded_rate(directory, seconds, ships=ships) for ships in order}
        report.pair(
            "recorder that ships", peer="that does not", ours=rates[True], theirs=rates[False], goal=SHIPPING_GOAL
        )
        for ships, rate in rates.items():
            report.figure(f"recorder, {'shipping' if ships else 'alone'} [messages/s]", rate)


def planning(directory: Path, report: Report) -> None:
    """Plan ten thousand recordings, of which a hundred grow, within the file-descriptor limit of a typical shell."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from tests.support.many_recordings import make_recordings

    from mainstem.spark.sources.options import parse_options
    from mainstem.spark.sources.recording import RecordingStreamReader

    growing = make_recordings(directory / "many", RECORDINGS, growing=GROWING)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for each in growing:
        each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    names = {"position": False, "payload": False}
    try:
        for _ in range(report.options.pairs):
            reader = RecordingStreamReader(parse_options({"path": str(directory / "many"), "parallelism": "2"}), names)
            started = time.perf_counter()
            begin = reader.initialOffset()
            end = reader.latestOffset(begin, ReadAllAvailable())
            reader.partitions(begin, end)
            first = time.perf_counter() - started
            # Convert the offset as Spark stores it.
            end = json.loads(json.dumps(end))
            started = time.perf_counter()
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            idle = time.perf_counter() - started
            reader.stop()
            report.pair("first plan, 10,000", peer="the goal", ours=first, theirs=PLAN_GOAL_S, smaller_is_better=True)
            report.pair("idle trigger, 10,000", peer="the goal", ours=idle, theirs=IDLE_GOAL_S, smaller_is_better=True)
            report.figure("first plan of 10,000 recordings [s]", first)
            report.figure("idle trigger over 10,000 recordings [s]", idle)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def live(directory: Path, report: Report) -> None:
    """Measure the time from offer to row for a query of the directory and for one through ``mainstem serve``, in turn."""
    import numpy as np

    from mainstem.spark import create_session
    from mainstem.spark.session import stop
    from spark import LATENCY_RATE, recorded

    session = create_session(
        "benchmark", config={"spark.local.dir": str(directory), "spark.sql.shuffle.partitions": "2"}
    )

    def offer_to_row(location: str, checkpoint: Path, publish: Any) -> float:
        taken: list[Any] = []

        def look(batch: Any, _: int) -> None:
            stamps = batch.selectExpr("substring(payload, 1, 8) as stamp").toArrow()["stamp"].combine_chunks()
            now = time.time_ns()
            if len(stamps):
                taken.append((now - np.frombuffer(stamps.buffers()[2], "<i8", len(stamps), 0)) / 1e9)

        source = session.readStream.format("mainstem.recording").option("startingPositions", "latest").load(location)
        writer = source.select("payload").writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.processAllAvailable()
        publish().stdout.readline()
        query.stop()
        return float(np.median(np.concatenate(taken[len(taken) // 4 :])))

    try:
        for pair in range(report.options.pairs // 2 + 1):
            delays = {}
            for kind in ("local", "serve") if pair % 2 else ("serve", "local"):
                own = directory / f"live-{pair}-{kind}"
                own.mkdir()
                with (
                    recorded(own, LATENCY_RATE // 5, report.options.either(12, 8)) as (path, publish),
                    served(path) as url,
                ):
                    location = url if kind == "serve" else str(path)
                    delays[kind] = offer_to_row(location, own / "checkpoint", publish)
                report.figure(f"{kind}: offer to row, p50 [ms]", delays[kind] * 1e3)
            if pair:  # the JVM compiles during the first
                report.pair(
                    "offer to row over serve, p50", peer="local", ours=delays["serve"], theirs=delays["local"],
                    goal=LIVE_GOAL, smaller_is_better=True,
                )  # fmt: skip
    finally:
        stop(session)


def main() -> None:
    parts = {"serve": serve, "s3": s3, "shipping": shipping, "planning": planning, "live": live}
    report = Report(options=parse_options(__doc__, parts, quick_pairs=2))
    try:
        for name in report.options.parts:
            with tempfile.TemporaryDirectory(
                prefix="mainstem-bench-", dir=os.environ.get("MAINSTEM_BENCH")
            ) as directory:
                parts[name](Path(directory), report)
    finally:
        # Report the results measured so far even if a later part fails.
        report.print()


if __name__ == "__main__":
    main()
