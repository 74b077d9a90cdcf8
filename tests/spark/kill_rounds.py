"""Kill shipper, recorder, server, query and executors in seeded rounds; the Delta table must contain each message once.

    python -m tests.spark.kill_rounds [--rounds 100] [--seed 1] [--log rounds.jsonl]

One publisher runs on its own driver, with an anchor that holds the stream while the recorder is down. The recorder writes to a
directory, the shipper moves closed segments from the directory to a store, and a server serves the directory. The query reads the
store, with the server as its tail, on executors that are separate processes, and writes a Delta table. In each round, a number of
messages is published and one to three programs are killed with SIGKILL; the query is sometimes stopped by its own stop. After each
round, DuckDB reads the files in the table's log, and the script compares numbers and payloads with the published ones.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.cluster import EXECUTOR, descendants, note_application, remove_work
from tests.support.held_publisher import HeldPublisher

from mainstem.errors import RecordingError
from mainstem.recording import Recorder, open_recordings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
CHANNEL, STREAM = "aeron:ipc?term-length=256k", 1001
TOKEN = "0123456789abcdef-token"
TIMEOUT_S = 1200.0
# The Spark driver takes longest to restart.
VICTIMS = {"shipper": 3, "recorder": 3, "server": 3, "query": 3, "executor": 3, "driver": 1}


def payload(number: int) -> bytes:
    """Return the number, followed by bytes derived from it."""
    digest = hashlib.sha256(number.to_bytes(8, "big")).digest()
    return number.to_bytes(8, "big") + (digest * 32)[: 8 + number * 37 % 900]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def query(root: Path, url: str) -> None:
    """Run the query from store and server into the Delta table until it is told to end; restart it whenever it has ended."""
    from mainstem.spark import create_session

    config = {
        "spark.local.dir": str(root / "spark"),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        # Executors are killed on purpose, so these failures are not the application's fault.
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20",
    }
    spark = create_session("kill-rounds", master="local-cluster[2,1,1024]", config=config)
    note_application(spark, root / "applications")
    while True:
        running = start(spark, root, {"tail": url, "tail.token": TOKEN, "minPartitions": "2"})
        while running.isActive and not (root / "cancel").exists() and not (root / "end").exists():
            time.sleep(0.02)
        if running.isActive:
            running.stop()
        elif (error := running.exception()) is not None:
            with (root / "ended").open("a") as ended:
                ended.write(json.dumps(str(error)[:2000]) + "\n")
        (root / "cancel").unlink(missing_ok=True)
        if (root / "end").exists():
            break
    spark.stop()


def start(spark: Any, root: Path, options: dict[str, str]) -> Any:
    """Start what ``mainstem ingest --format delta --follow`` starts."""
    from mainstem.spark.ingest.options import IngestOptions
    from mainstem.spark.ingest.query import start

    return start(
        spark,
        IngestOptions(
            source=str(root / "store"),
            out=str(root / "table"),
            format="delta",
            follow=True,
            trigger_interval=0.2,
            source_options=options,
            checkpoint=str(root / "checkpoint"),
        ),
    )


class Trial:
    """The programs of one run, in one directory."""

    def __init__(self, root: Path, directory: str) -> None:
        self.root, self.directory = root, directory
        self.killed = dict.fromkeys(VICTIMS, 0)
        self.checked = 0
        self._known: set[str] = set()
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (root / "recordings").mkdir()
        # Omit Spark's own path, which contains pyspark in an archive that is recompiled at each start: Spark gives a Python process
        # ten seconds to start, and a query whose process is late ends.
        (root / "python").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"}:{ROOT} exec {sys.executable} "$@"\n')
        (root / "python").chmod(0o700)
        (root / "token").write_text(TOKEN)
        (root / "token").chmod(0o600)
        Recorder(root / "recordings").close()
        self.publisher = HeldPublisher(
            directory, root / "recordings", channel=CHANNEL, stream_id=STREAM, payload=payload
        )

    def begin(self) -> None:
        """Start everything, and wait until rows arrive."""
        self.publisher.goal = 2000
        self._start("recorder")
        self._start("server")
        self._start("shipper")
        self._wait(self._is_shipped, "nothing is shipped")
        self._start("driver")
        self._wait(lambda: self.rows() > 0, "the query does not begin")

    def _command(self, name: str) -> list[str]:
        recordings, python = str(self.root / "recordings"), [sys.executable, "-m"]
        match name:
            case "recorder":
                flags = ["--stream", str(STREAM), "--dir", self.directory, "--segment-length", "256k"]
                return [*python, "mainstem", "record", CHANNEL, "--out", recordings, *flags]
            case "shipper":
                flags = ["--flush-interval", "1s", "--chunk-size", "64k", "--local-retention", "1m"]
                return [*python, "mainstem", "ship", recordings, str(self.root / "store"), *flags]
            case "server":
                flags = ["--listen", f"127.0.0.1:{self._port}", "--token-file", str(self.root / "token")]
                return [*python, "mainstem", "serve", recordings, *flags]
        return [*python, "tests.spark.kill_rounds", "--as", str(self.root), f"http://127.0.0.1:{self._port}"]

    def _start(self, name: str) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths, "PYSPARK_PYTHON": str(self.root / "python")}
        with (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name), env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def _is_shipped(self) -> bool:
        try:
            with open_recordings(self.root / "store") as recordings:
                return any(reader.end_position() for reader in recordings)
        except RecordingError:
            return False

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if self.publisher.error is not None:
                raise self.publisher.error
            for name, process in self._processes.items():
                assert process.poll() is None, f"the {name} ended: {self.log(name)}"
            assert time.monotonic() < deadline, f"{otherwise}: {self.logs()}"
            time.sleep(0.1)

    def log(self, name: str) -> str:
        """Return the end of a program's output."""
        return (self.root / f"{name}.log").read_text(errors="replace")[-3000:]

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)}" for name in self._processes)

    def _files(self) -> dict[str, int]:
        """Return the table's files, as delta-rs lists them, with their row counts."""
        import pyarrow as pa
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            actions = pa.table(DeltaTable(self.root / "table").get_add_actions())
        except TableNotFoundError:
            return {}
        return dict(zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True))

    def rows(self) -> int:
        return sum(self._files().values())

    def check(self, *, every: bool = False) -> None:
        """Check the new part of the table, or all of it: each message since the last check, exactly once, as it was published."""
        files = self._files()
        names = [name for name in files if every or name not in self._known]
        first, last = (0 if every else self.checked), self.publisher.published
        rows = payloads(self.root / "table", names)
        assert rows == [payload(number) for number in range(first, last)], _difference(rows, first, last)
        self._known, self.checked = set(files), last

    def kill(self, victim: str, rng: random.Random) -> None:
        """Kill one program, and restart it a moment later."""
        if victim == "query":
            (self.root / "cancel").touch()
        elif victim == "executor":
            below = descendants(self._processes["driver"].pid)
            executors = sorted(pid for pid, line in below.items() if EXECUTOR in line)
            if executors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(executors), signal.SIGKILL)
        else:
            process = self._processes[victim]
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(rng.random())
            self._start(victim)
        self.killed[victim] += 1

    def round(self, number: int, seed: int) -> dict[str, Any]:
        """Run one round; return its results."""
        rng = random.Random(f"{seed}:{number}")
        began, before = time.monotonic(), self.publisher.goal
        self.publisher.goal += rng.randrange(200, 1500)
        victims = rng.choices(list(VICTIMS), list(VICTIMS.values()), k=rng.randrange(1, 4))
        for victim in victims:
            time.sleep(rng.random())
            self.kill(victim, rng)
        self._wait(lambda: self.rows() >= self.publisher.goal, f"not all arrives ({self.publisher.goal})")
        self.check()
        seconds = round(time.monotonic() - began, 1)
        return {"round": number, "victims": victims, "messages": self.publisher.goal - before, "seconds": seconds}

    def finish(self) -> dict[str, Any]:
        """Check the whole table once more."""
        self.check(every=True)
        ended = self.root / "ended"
        return {
            "messages": self.publisher.published,
            "rows": self.rows(),
            "files": len(self._files()),
            "killed": self.killed,
            "queries_that_failed": len(ended.read_text().splitlines()) if ended.exists() else 0,
        }

    def close(self) -> None:
        self.publisher.close()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        remove_work(self.root / "applications")


def payloads(table: Path, names: list[str]) -> list[bytes]:
    """Return the payloads in some files of a table, in numerical order, as DuckDB reads them."""
    import duckdb

    if not names:
        return []
    paths = [str(table / name) for name in names]
    with duckdb.connect() as connection:
        rows = connection.execute("select payload from read_parquet(?) order by payload[1:8]", [paths]).fetchall()
    return [bytes(row[0]) for row in rows]


def _difference(rows: list[bytes], first: int, last: int) -> str:
    numbers = [int.from_bytes(row[:8], "big") for row in rows]
    missing = sorted(set(range(first, last)) - set(numbers))
    twice = sorted({number for number in numbers if numbers.count(number) > 1}) if len(numbers) < 50_000 else "?"
    return f"{len(rows)} rows of [{first}, {last}), missing {missing[:20]}, more than once {twice}"


def run(rounds: int, seed: int, *, say: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Run rounds over one table; return the results. Raises AssertionError for a missing or duplicate message."""
    from mainstem import MediaDriver

    with tempfile.TemporaryDirectory(prefix="mainstem-rounds-") as root, MediaDriver.launch() as driver:
        trial = Trial(Path(root), driver.directory)
        try:
            trial.begin()
            for number in range(rounds):
                say(trial.round(number, seed))
            return {"rounds": rounds, "seed": seed, **trial.finish()}
        finally:
            trial.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="a line of JSON for each round")
    parser.add_argument("--as", dest="role", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        query(Path(given.role[0]), given.role[1])
        return

    def say(result: dict[str, Any]) -> None:
        line = json.dumps(result)
        print(line, flush=True)
        if given.log:
            with given.log.open("a") as log:
                log.write(line + "\n")

    say(run(given.rounds, given.seed, say=say))


if __name__ == "__main__":
    main()
