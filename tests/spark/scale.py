"""Run ``mainstem ingest`` and ``mainstem analyze`` on inputs of any size, and report their run time and memory.

    python -m tests.spark.scale recording 256m [1g ...] [--directory /data/tmp]
    python -m tests.spark.scale capture 256m [1g ...]

``benchmarks/harness`` first creates the inputs; they and all outputs are removed in the end. A run takes about three times its size
on disk. Prints a line of JSON for each size: seconds, whether all data arrived, and the peak resident memory in MiB of the JVM, of
the largest Python worker and of all workers together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.spark.cluster import descendants

from mainstem._internal.units import parse_size

ROOT = Path(__file__).parents[2]
LOOK_S = 0.1
MIB = 1 << 20


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


class Peaks:
    """The peak memory use of a process's descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.jvm = self.worker = self.workers = self.most_workers = 0

    def look(self) -> None:
        """Update the peaks with the current memory use."""
        below = descendants(self._pid)
        python = [resident(pid) for pid, line in below.items() if b"pyspark" in line and b"java" not in line]
        java = [resident(pid) for pid, line in below.items() if b"org.apache.spark" in line]
        self.jvm = max([self.jvm, *java])
        self.worker = max([self.worker, *python])
        # Pages that a worker shares with the process that forked it are counted for both.
        self.workers = max(self.workers, sum(python))
        self.most_workers = max(self.most_workers, len(python))

    def as_json(self) -> dict[str, int]:
        """Return the peaks in MiB."""
        sizes = {"jvm_mib": self.jvm, "largest_worker_mib": self.worker, "workers_mib": self.workers}
        return {name: value // MIB for name, value in sizes.items()} | {"workers": self.most_workers}


def run(kind: str, size: int, directory: Path) -> dict[str, Any]:
    """Run once; return the results."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from harness import make_capture, recordings

    made = directory / "input"
    if kind == "recording":
        count = recordings.make(made, size)
        command = [
            "ingest",
            str(made),
            "--out",
            str(directory / "table"),
            "--source-option",
            "maxBytesPerTrigger=256m",
            "--json",
        ]
    else:
        made.mkdir()
        count = make_capture.make(made / "big.pcap", size, mux=True)
        ports = str(make_capture.MUX_PORT)
        command = ["analyze", str(made / "big.pcap"), "--bymux-ports", ports, "--out", str(directory / "out"), "--json"]
    size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_DIRS": str(directory)}
    started = time.monotonic()
    log = (directory / "log").open("wb")
    with log, subprocess.Popen(
        [sys.executable, "-m", "mainstem", *command], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
    ) as job:  # fmt: skip
        peaks = Peaks(job.pid)
        while job.poll() is None:
            peaks.look()
            time.sleep(LOOK_S)
        assert job.stdout is not None
        told = job.stdout.read()
    seconds = time.monotonic() - started
    assert job.returncode == 0, (directory / "log").read_text(errors="replace")[-3000:]
    found = json.loads(told)
    if kind == "recording":
        same = found["messages"] == found["rows"] == count
    else:
        # The first packet of the connection has no frame.
        same = found["packets"] == count - 1
    return {
        "kind": kind,
        "bytes": size,
        "made": count,
        "all_there": same,
        "seconds": round(seconds, 1),
    } | peaks.as_json()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("recording", "capture"))
    parser.add_argument("sizes", nargs="+")
    parser.add_argument("--directory", type=Path, help="where to put everything; default: the temporary directory")
    given = parser.parse_args()
    for text in given.sizes:
        directory = Path(tempfile.mkdtemp(prefix="mainstem-scale-", dir=given.directory))
        try:
            result = run(given.kind, parse_size(text, name="size"), directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        print(json.dumps(result), flush=True)
        if not result["all_there"]:
            sys.exit(1)


if __name__ == "__main__":
    main()
