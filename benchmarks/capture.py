"""How fast does ``mainstem.capture`` read a capture, compared with tshark and scapy on the same file?

``python benchmarks/capture.py [--json] [--quick] [--pairs N] [--size 256m] [--only TEXT,...] [--peer NAME]``. Each run creates
the file. tshark prints the fields that we read as columns, and then everything it knows as JSON. scapy parses each packet up to
UDP, because it does not know Aeron. Our times include creating the frame index. Slow peers read a smaller file with the same
kind of content, so ratios use packets per second. ``mainstem analyze`` is compared with the tshark statistics that contain its
counts, both as a user types them.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.make_capture import DATA_PORT, MUX_PORT, make
from harness.options import parse_options
from harness.report import Report

from mainstem._internal.units import parse_size
from mainstem.capture.index import build
from mainstem.capture.planning import CapturePartition, FrameSelection, plan
from mainstem.capture.reading import read

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

CORES = 2
COLUMNS = ("packet", "time", "src", "src_port", "frame_type", "session_id", "term_offset", "nak_length")
FIELDS = [
    *("frame.number", "frame.time_epoch", "ip.src", "udp.srcport", "aeron.data.session_id", "aeron.data.term_offset"),
    "aeron.nak.length",
]
# The counts of ``mainstem analyze`` and more: conversations, losses and retransmission requests, and the amount of each kind per
# second.
PER_SECOND = "io,stat,1," + ",".join(
    (
        "COUNT(aeron.data)aeron.data",
        "COUNT(aeron.nak)aeron.nak",
        "SUM(aeron.nak.length)aeron.nak",
        "COUNT(aeron.sm)aeron.sm",
    )
)
STATISTICS = [
    *("-q", "-o", "aeron.sequence_analysis:TRUE", "-o", "aeron.stream_analysis:TRUE"),
    *("-z", "expert", "-z", "conv,udp", "-z", PER_SECOND),
]
ANALYZED, QUICK_ANALYZED = "100m", "10m"
GOAL, ANALYZE_GOAL = 10.0, 1.0
PEERS = ("tshark", "scapy")
SCAPY = """
import sys, scapy.all
n = 0
for packet in scapy.all.PcapReader(sys.argv[1]):
    n += packet[scapy.all.UDP].sport > 0
"""


def rows_of(part: CapturePartition, wanted: FrameSelection) -> tuple[int, int, float]:
    """Return the rows of a part, the peak memory of its process in KiB, and the seconds of CPU time."""
    start = time.process_time()
    rows = sum(batch.num_rows for batch in read(part, wanted))
    return rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time() - start


def library(pool: ProcessPoolExecutor, path: Path) -> tuple[float, int, int, float]:
    """Read a file with two processes. Return the seconds, the rows, the peak memory of one process, and the seconds of CPU time."""
    wanted = FrameSelection(names=COLUMNS, bymux_ports=(MUX_PORT,))
    start, spent = time.perf_counter(), time.process_time()
    parts = plan(str(path), build(str(path)), wanted, min_parts=CORES)
    found = list(pool.map(rows_of, parts, [wanted] * len(parts)))
    seconds = time.perf_counter() - start
    spent = time.process_time() - spent + sum(used for _, _, used in found)
    return seconds, sum(rows for rows, _, _ in found), max(peak for _, peak, _ in found), spent


def spark_session() -> Any:
    from mainstem.spark import create_session

    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    return create_session("capture", master=f"local[{CORES}]", config={"spark.ui.enabled": "false"})


def with_spark(spark: Any, path: Path) -> float:
    """Return the seconds of one query that reads the same columns."""
    Path(f"{path}.mainstem-index").unlink(missing_ok=True)
    start = time.perf_counter()
    frame = spark.read.format("mainstem.capture").options(bymuxPorts=MUX_PORT, minPartitions=CORES)
    frame = frame.schema("frame_type string, packet bigint, time timestamp, src string, src_port int, session_id int, "
                         "term_offset int, nak_length int").load(str(path))  # fmt: skip
    frame.groupBy("frame_type").agg(
        *({"packet": "max", "time": "max", "src": "max", "session_id": "max", "nak_length": "sum"},)
    ).collect()
    return time.perf_counter() - start


def timed(command: list[str]) -> tuple[float, float]:
    """Run a program. Return its wall-clock and CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tshark(path: Path, *output: str) -> tuple[float, float]:
    return timed(["tshark", "-r", str(path), "-d", f"udp.port=={DATA_PORT},aeron", *output])


def scapy(path: Path) -> tuple[float, float]:
    return timed([sys.executable, "-c", SCAPY, str(path)])


def peers(report: Report) -> dict[str, tuple[Callable[[Path], tuple[float, float]], float]]:
    """Return for each peer, by name, how it reads a file, and what share of the whole file it reads."""
    found: dict[str, tuple[Callable[[Path], tuple[float, float]], float]] = {}
    if "tshark" not in report.options.peers:
        report.skipped["tshark"] = "another was asked for"
    elif shutil.which("tshark"):
        fields = [word for name in FIELDS for word in ("-e", name)]
        found["tshark -T fields"] = (lambda path: tshark(path, "-T", "fields", *fields), 0.125)
        found["tshark -T json"] = (lambda path: tshark(path, "-T", "json"), 0.0625)
    else:
        report.skipped["tshark"] = "it is not installed"
    if "scapy" not in report.options.peers:
        report.skipped["scapy"] = "another was asked for"
    elif importlib.util.find_spec("scapy"):
        found["scapy"] = (scapy, 1 / 64)
    else:
        report.skipped["scapy"] = "the package scapy is not installed"
    return found


def beside_peers(report: Report, read_whole: Callable[[], tuple[float, float | None]], ours: str, made: Made) -> None:
    """Compare a way to read the whole file with each peer. ``read_whole`` returns the seconds, and the CPU seconds if known."""
    for _ in range(made.pairs):
        seconds, spent = read_whole()
        for name, (peer, share) in peers(report).items():
            their_seconds, their_spent = peer(made.part(share))
            theirs = made.packets * share / their_seconds
            goal = GOAL if name == "tshark -T fields" else None
            report.figure(f"{name}: packets/s", theirs)
            report.pair(f"{ours} / {name}", peer=name, ours=made.packets / seconds, theirs=theirs, goal=goal)
            if spent is not None:
                # The rate per second of CPU time does not depend on what else the host does.
                report.pair(
                    f"a processor's second / {name}",
                    peer=name,
                    ours=made.packets / spent,
                    theirs=made.packets * share / their_spent,
                )


@dataclass
class Made:
    """The created file, and parts of it for slow peers."""

    directory: Path
    size: int
    pairs: int

    def __post_init__(self) -> None:
        self.whole = self.directory / "whole.pcap"
        self.packets = make(self.whole, self.size)

    def part(self, share: float) -> Path:
        """Return a smaller file with the same kind of content."""
        path = self.directory / f"{share}.pcap"
        if not path.exists():
            make(path, int(self.size * share))
        return path


def by_library(report: Report, pool: ProcessPoolExecutor, made: Made) -> None:
    """Read with two processes, without Spark."""

    def once() -> tuple[float, float]:
        seconds, rows, peak, spent = library(pool, made.whole)
        report.figure("two processes: M frames/s", rows / seconds / 1e6)
        report.figure("two processes: MB/s", made.size / seconds / 1e6)
        report.figure("two processes: peak of one, MiB", peak / 1024)
        report.figure("a processor's second: M frames", rows / spent / 1e6)
        return seconds, spent

    library(pool, made.whole)
    beside_peers(report, once, "two processes", made)


def by_spark(report: Report, made: Made) -> None:
    """Read with a Spark query on the same number of cores."""

    def once() -> tuple[float, None]:
        seconds = with_spark(spark, made.whole)
        report.figure("Spark: MB/s", made.size / seconds / 1e6)
        return seconds, None

    spark = spark_session()
    try:
        with_spark(spark, made.whole)
        beside_peers(report, once, f"Spark local[{CORES}]", made)
    finally:
        spark.stop()


def analyze(report: Report, directory: Path) -> None:
    """Compare whole commands: a report, and the tables that tshark prints."""
    if "tshark" not in report.options.peers or not shutil.which("tshark"):
        report.skipped["tshark -z"] = "it is not installed, or another was asked for"
        return
    path = directory / "analyzed.pcap"
    make(path, parse_size(report.options.either(ANALYZED, QUICK_ANALYZED)))
    command = [sys.executable, "-m", "mainstem", "analyze", str(path), "--out", str(directory / "report")]
    for _ in range(report.options.pairs):
        Path(f"{path}.mainstem-index").unlink(missing_ok=True)
        (ours, spent), (theirs, their_spent) = timed(command), tshark(path, *STATISTICS)
        report.pair(
            "mainstem analyze / tshark -z", peer="tshark -z", ours=1 / ours, theirs=1 / theirs, goal=ANALYZE_GOAL
        )
        report.figure("mainstem analyze [s]", ours)
        report.figure("mainstem analyze [s of processors]", spent)
        report.figure("tshark -z [s]", theirs)
        report.figure("tshark -z [s of processors]", their_spent)


def _of_captures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=parse_size, metavar="BYTES", help="of the capture, as in 32m")


def main() -> None:
    options = parse_options(__doc__, ("library", "spark", "growth", "analyze"), peers=PEERS, more=_of_captures)
    size = options.values.size or parse_size(options.either("256m", "32m"))
    report = Report(options=options)
    with tempfile.TemporaryDirectory(prefix="mainstem-capture-") as directory, ProcessPoolExecutor(CORES) as pool:
        made = Made(Path(directory), size, options.pairs)
        if "library" in options.parts:
            by_library(report, pool, made)
        if "spark" in options.parts:
            by_spark(report, made)
        if "growth" in options.parts:
            growth(report, pool, Path(directory), size)
        if "analyze" in options.parts:
            analyze(report, Path(directory))
    report.print()


def growth(report: Report, pool: ProcessPoolExecutor, directory: Path, size: int) -> None:
    """Check that time grows no faster than size: seconds per byte of a file, compared with those of a file four times larger."""
    small, mixed = directory / "small.pcap", directory / "mixed.pcap"
    make(small, size // 4)
    make(mixed, size, mux=True)
    for _ in range(report.options.pairs):
        few = library(pool, small)[0]
        many = library(pool, directory / "whole.pcap")[0]
        report.pair(
            "four times the bytes in four times the time", peer="a quarter", ours=4 * few, theirs=many, goal=0.8
        )
        report.figure("with TCP: MB/s", size / library(pool, mixed)[0] / 1e6)


if __name__ == "__main__":
    main()
