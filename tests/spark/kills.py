"""Kill the query, the recorder or a worker again and again; in the end the table must contain each message once.

    python -m tests.spark.kills [--kills 50] [--seed 1] [--json]

One publisher runs the whole time on its own driver, with an anchor that holds the stream while the recorder is down. The recorder
and the query are separate processes. They are killed with SIGKILL at moments drawn from the seed, and restarted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, RecorderSlot, open_recordings

ROOT = Path(__file__).parents[2]
CHANNEL, STREAM = "aeron:ipc?term-length=1m", 1001
BATCH, PAUSE_S = 40, 0.004
TIMEOUT_S = 300.0
VICTIMS = ("query", "recorder", "worker")
# A query takes longest to restart, so it is drawn less often.
WEIGHTS = (2, 4, 4)


def query(root: Path) -> None:
    """Run the query from the recordings into a Parquet table until it is told to end."""
    from pyspark.sql import functions as f

    from mainstem.spark import create_session

    config = {
        "spark.local.dir": str(root / "spark"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    # Four attempts per task, so that a killed worker does not end the query.
    spark = create_session("kills", master="local[2,4]", config=config)
    source = spark.readStream.format("mainstem.recording").option("minPartitions", 2).load(str(root / "recordings"))
    rows = source.select("position", f.conv(f.hex(f.substring("payload", 1, 8)), 16, 10).cast("bigint").alias("number"))
    table = rows.writeStream.format("parquet").option("path", str(root / "table"))
    running = (
        table.option("checkpointLocation", str(root / "checkpoint")).trigger(processingTime="100 milliseconds").start()
    )
    while not (root / "end").exists():
        if not running.isActive:
            raise SystemExit(f"the query ended: {running.exception()}")
        time.sleep(0.05)
    running.processAllAvailable()
    running.stop()
    found = spark.read.parquet(str(root / "table"))
    count = "count(*) rows, count(distinct number) different, min(number) first, max(number) last"
    (root / "result").write_text(json.dumps(found.selectExpr(*count.split(", ")).first().asDict()))
    spark.stop()


def record(root: Path, directory: str) -> None:
    """Run the recorder until it is killed."""
    from mainstem import Aeron

    with (
        Aeron.connect(directory) as aeron,
        aeron.add_subscription(CHANNEL, STREAM) as subscription,
        Recorder(root / "recordings", segment_length=4 << 20) as recorder,
    ):
        recorder.add_subscription(subscription)
        while True:
            if not recorder.do_work():
                time.sleep(0.001)


class Publisher:
    """Publishes numbers from its own thread, and holds the stream for its recorder."""

    def __init__(self, directory: str, recordings: Path) -> None:
        self._directory, self._recordings = directory, recordings
        self._end = threading.Event()
        self.published = 0
        self.position = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self.error = error

    def _publish(self) -> None:
        from mainstem import Aeron

        with (
            Aeron.connect(self._directory) as aeron,
            aeron.add_subscription(CHANNEL, STREAM) as held,
            aeron.add_exclusive_publication(CHANNEL, STREAM) as publication,
            RecorderSlot(self._recordings) as anchor,
        ):
            anchor.add_subscription(held)
            while not self._end.is_set() or self.recorded() < self.position:
                anchor.do_work(SYSTEM_CLOCK.monotonic_ns())
                for _ in range(0 if self._end.is_set() else BATCH):
                    size = 8 + self.published * 37 % 900
                    if publication.offer(self.published.to_bytes(8, "big").ljust(size, b".")) < 0:
                        break
                    self.published += 1
                    self.position = publication.position
                time.sleep(PAUSE_S)

    def recorded(self) -> int:
        """Return the recorded position of the stream."""
        try:
            readers = open_recordings(self._recordings)
        except RecordingError:
            return 0
        end = max((reader.end_position() for reader in readers), default=0)
        for reader in readers:
            reader.close()
        return end

    def finish(self) -> int:
        """Stop publishing; return the number of messages once all are recorded."""
        self._end.set()
        self._thread.join(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive(), "what was published was not recorded"
        return self.published


class Trial:
    """The processes of one run, in one directory."""

    def __init__(self, root: Path, directory: str, seed: int) -> None:
        self.root, self.directory = root, directory
        self.rng = random.Random(seed)
        self.killed = dict.fromkeys(VICTIMS, 0)
        (root / "recordings").mkdir()
        Recorder(root / "recordings").close()
        self.publisher = Publisher(directory, root / "recordings")
        self.recorder = self._start("record", directory)
        self.query = self._start("query")

    def _start(self, *what: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "tests.spark.kills", "--as", what[0], str(self.root), *what[1:]]
        log = (self.root / "log").open("ab")
        with log:
            return subprocess.Popen(
                command, env=os.environ | {"PYTHONPATH": paths}, stdout=log, stderr=log, start_new_session=True
            )

    def _commits(self) -> int:
        return sum(1 for path in (self.root / "checkpoint" / "commits").glob("[0-9]*"))

    def _wait_for_rows(self) -> None:
        """Wait until the query has committed something since the last check."""
        before, deadline = self._commits(), time.monotonic() + TIMEOUT_S
        while self._commits() <= before:
            assert time.monotonic() < deadline, "the query does not go on: " + self.log()
            assert self.query.poll() is None, "the query ended: " + self.log()
            time.sleep(0.05)

    def log(self) -> str:
        """Return the end of the processes' output."""
        return (self.root / "log").read_text(errors="replace")[-3000:]

    def kill(self) -> str:
        """Kill one process, at a random moment in the second after rows were seen to arrive."""
        self._wait_for_rows()
        (victim,) = self.rng.choices(VICTIMS, WEIGHTS)
        time.sleep(self.rng.random())
        if victim == "query":
            os.killpg(self.query.pid, signal.SIGKILL)
            self.query.wait()
            self.query = self._start("query")
        elif victim == "recorder":
            os.killpg(self.recorder.pid, signal.SIGKILL)
            self.recorder.wait()
            time.sleep(self.rng.random())
            self.recorder = self._start("record", self.directory)
        else:
            workers = sorted(self._workers())
            if not workers:
                return self.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.rng.choice(workers), signal.SIGKILL)
        self.killed[victim] += 1
        return victim

    def _workers(self) -> list[int]:
        """Return Spark's Python workers: processes in the query's group that a daemon forked."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if os.getpgid(int(name)) == self.query.pid or int(fields[3]) == self.query.pid:
                    command = Path(f"/proc/{name}/cmdline").read_bytes()
                    found[int(name)] = (int(fields[1]), b"pyspark.daemon" in command)
        return [pid for pid, (parent, daemon) in found.items() if daemon and found.get(parent, (0, False))[1]]

    def finish(self) -> dict[str, Any]:
        """Wait until everything has arrived, and count."""
        published = self.publisher.finish()
        (self.root / "end").touch()
        assert self.query.wait(TIMEOUT_S) == 0, self.log()
        counted = json.loads((self.root / "result").read_text())
        once = counted == {"rows": published, "different": published, "first": 0, "last": published - 1}
        return {"published": published, **counted, "killed": self.killed, "each_once": once}

    def close(self) -> None:
        """End the processes that are still running."""
        for process in (self.query, self.recorder):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(kills: int, seed: int, *, say: Any = lambda _: None) -> dict[str, Any]:
    """Run the given number of kills; return the results."""
    from mainstem import MediaDriver

    with tempfile.TemporaryDirectory(prefix="mainstem-kills-") as root, MediaDriver.launch() as driver:
        trial = Trial(Path(root), driver.directory, seed)
        try:
            for number in range(kills):
                say(f"{number + 1}: {trial.kill()}")
            return {"seed": seed, **trial.finish()}
        finally:
            trial.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as", dest="role", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        role, root, *rest = given.role
        query(Path(root)) if role == "query" else record(Path(root), *rest)
        return
    result = run(given.kills, given.seed, say=lambda text: None if given.json else print(text, flush=True))
    print(json.dumps(result))
    if not result["each_once"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
