"""Kill queries at any moment and mistreat their files; each message must arrive once, or the run must say what to do.

    python -m tests.spark.incidents [--rounds 10] [--seed 1] [KIND ...]

A kind is a query: ``parquet``, ``delta`` and ``iceberg`` load recordings into a table with ``mainstem ingest --follow``, ``live``
loads a running stream that it records itself, and ``aeron``, ``bymux``, ``jmux`` and ``aqueduct`` send recordings to a channel with
the sink ``mainstem.channel``.

In each round, more messages come while the query runs, and it, or a program that it depends on, is killed with SIGKILL as soon as
something changes in its checkpoint or its table. Then something happens to these, and the query is started again with other cores
and options; that of a sink may also run on the executors of a cluster. Once all messages have arrived, they are compared with those
that were sent:

- A table has each message once and unchanged. Or the run was refused with an error that says what to do, but only if its files were
  mistreated; then these are put back, and the next run must succeed.
- A receiver has each message of a query once, after messages with a key that has arrived before are dropped. A new checkpoint is a
  new query.
- Messages that were in a media driver's log when it was killed may be lost; they are counted.

DuckDB reads the tables, with the file lists of deltalake, pyiceberg and Spark's own log. Received messages are read from the frames
in the segment files.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tests.spark.cluster import EXECUTOR, note_application, remove_work
from tests.support.ports import free_port
from tests.support.set_clock import SetClock
from tests.support.waiting import wait_for

from mainstem.message_keys import Deduplicator, MessageKey
from mainstem.recording import Recorder
from mainstem.recording.message_server import MessageLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
IPC, STREAM = "aeron:ipc?term-length=64k", 1001
DEFAULTS = """\
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.deploy.maxExecutorRetries -1
spark.local.dir {root}/spark
spark.python.authenticate.socketTimeout 400s
"""
ADVICE = re.compile(
    r"continue with the checkpoint|delete the checkpoint|use the newer one|stop it first|use another|set failOnDataLoss"
)
FRAME = struct.Struct("<iBBHiiiiq")  # of a segment file, as in docs/protocols/aeron.md
BEGIN, END, DATA = 0x80, 0x40, 1


def payload(number: int) -> bytes:
    """Return the message with that number, in JSON."""
    digest = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()
    return b'{"n": %d, "text": "%s"}' % (number, (digest * 4)[: number * 37 % 250].encode())


def reads(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield reserved value and payload of the unfragmented messages in a segment file."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while at + FRAME.size <= len(data):
            length, _, flags, kind, *_, reserved = FRAME.unpack_from(data, at)
            if length <= 0:
                return
            if kind == DATA:
                assert flags & (BEGIN | END) == BEGIN | END, f"{path.name}: a fragment at {at}"
                yield reserved, data[at + FRAME.size : at + length]
            at += (length + 31) & ~31


class Program:
    """A program in a session of its own, with all that it starts."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._log, self._begin = log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"PYTHONPATH": paths} | environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.pid, self._is_over = self._process.pid, False

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        return self._log.read_bytes()[self._begin :].decode(errors="replace")[-3000:]

    def members(self) -> dict[int, bytes]:
        """Return the command lines of the processes in its session."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.getsid(int(name)) == self.pid:
                    found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes()
        return found

    def kill(self, *pids: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the program and what remains of its session."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            wait_for(lambda: not self._remaining(), poll_s=0.05)
        self._is_over = True

    def _remaining(self) -> list[int]:
        pids = [pid for pid, line in self.members().items() if line]
        self.kill(*pids)
        return pids


# -- rounds ------------------------------------------------------------------------------------------------------------


class Trial:
    """A query, its files, and what happens to them."""

    # What a mistreated query gets back after it was refused.
    kept: tuple[str, ...] = ("recordings", "checkpoint")
    # What is killed, and how often; "driver" is Spark's.
    victims: ClassVar[dict[str, int]] = {"driver": 5, "command": 2, "worker": 3}
    events: tuple[str, ...] = ("offsets", "commits")

    def __init__(self, root: Path, kind: str, rng: random.Random) -> None:
        self.root, self.kind, self.rng = root, kind, rng
        self.recordings, self.checkpoint = root / "recordings", root / "checkpoint"
        self._saved, self._older = root / "saved", root / "older"
        self.recorded = 0
        self.counts: Counter[str] = Counter()
        self._queries: list[Program] = []
        self.programs: dict[str, Program] = {}
        (root / "conf").mkdir()
        (root / "conf" / "spark-defaults.conf").write_text(DEFAULTS.format(root=root))
        # Without Spark's own path, which has pyspark in an archive that every process compiles again.
        (root / "python").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"}:{ROOT} exec {sys.executable} "$@"\n')
        (root / "python").chmod(0o700)

    @property
    def query(self) -> Program:
        """The query that was started last."""
        return self._queries[-1]

    def command(self, master: str, options: dict[str, str]) -> list[str]:
        """Return the command that runs the query until it is told to end."""
        raise NotImplementedError

    def arrived(self) -> int:
        """Return how many messages have arrived."""
        raise NotImplementedError

    def check(self, *, is_complete: bool) -> None:
        """Compare the messages that have arrived with those that were recorded."""
        raise NotImplementedError

    def incidents(self) -> dict[Callable[[], None], bool]:
        """Return what may happen before a run, and whether the run may then be refused."""
        raise NotImplementedError

    def record(self) -> None:
        """Record more messages. The recordings of three streams are extended again and again, and the clock may have been set."""
        count, clock = self.rng.randint(1, 200), SetClock(self.rng.choice([0, 0, -HOUR_MS, HOUR_MS]))
        with Recorder(self.recordings, clock=clock) as recorder:
            log = MessageLog(recorder, stream_id=STREAM + self.rng.randrange(3), clock=clock)
            log.write((0, payload(number)) for number in range(self.recorded, self.recorded + count))
        self.recorded += count

    def drawn(self) -> tuple[str, dict[str, str]]:
        """Draw the cores of a run, and the options that divide its messages into micro-batches and tasks."""
        rng = self.rng
        options = {
            "minPartitions": str(rng.randint(1, 5)),
            "partitionBytes": rng.choice(["4k", "16k", "512m"]),
            "maxRowsPerPartition": str(rng.choice([40, 100, 10_000])),
            "maxBytesPerTrigger": rng.choice(["20k", "100k"]),
        }
        return f"local[{rng.randint(1, 3)},4]", {name: options[name] for name in options if rng.random() < 0.5}

    def start(self) -> Program:
        environment = {"SPARK_CONF_DIR": str(self.root / "conf"), "PYSPARK_PYTHON": str(self.root / "python")}
        self._queries.append(Program(self.command(*self.drawn()), self.root / "query.log", **environment))
        return self.query

    def nothing(self) -> None: ...

    def forget_commit(self) -> None:
        """Remove the last commit from the checkpoint, as if the driver had died before it."""
        numbers = [int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")]
        for name in (f"{max(numbers)}", f".{max(numbers)}.crc") if numbers else ():
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def restore_older_checkpoint(self) -> None:
        if self._older.exists():
            copy(self._older, self.checkpoint)

    def kill(self) -> str:
        """Kill a part just after something happened. Return which one, and after what."""
        event, victim = self.rng.choice(self.events), self.rng.choices(*zip(*self.victims.items(), strict=True))[0]
        before, members = self._seen(event), self.query.members()
        self.record()
        wait_for(lambda: self._seen(event) != before, progress=self._progress, poll_s=0.005)
        time.sleep(self.rng.random() ** 4)
        if victim in self.programs:
            self.restart(victim)
        else:
            victim = self._kill_part(victim, members)
        self.counts[f"{victim} killed"] += 1
        return f"{victim} killed after {event}"

    def _kill_part(self, victim: str, members: dict[int, bytes]) -> str:
        """Kill a part of the query. Workers are among the processes that it had before."""
        name = EXECUTOR if victim == "executor" else b"pyspark.daemon"
        parts = [pid for pid in self.query.members().keys() & members.keys() if name in members[pid]]
        if victim in ("worker", "executor") and parts:
            self.query.kill(self.rng.choice(sorted(parts)))
            return victim
        if victim == "command":
            # The JVM and its workers notice it by themselves.
            self.query.kill(self.query.pid)
            return victim
        os.killpg(self.query.pid, signal.SIGKILL)
        return "driver"

    def restart(self, name: str) -> None:
        """Kill another program, and start it again."""
        self.programs[name].end()
        self.launch(name)

    def launch(self, name: str) -> None:
        """Start another program."""
        self.programs[name] = Program(self.program(name), self.root / f"{name}.log")

    def program(self, name: str) -> list[str]:
        """Return the command of another program."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Start the other programs that have ended again, as those of a media driver that was killed."""
        for name, program in self.programs.items():
            if program.returncode is not None:
                self.launch(name)

    def _seen(self, event: str) -> int:
        """Return a number that changes when something of that kind happens."""
        if event == "table":
            return sum(1 for _ in (self.root / event).rglob("*"))
        return sum(1 for _ in (self.checkpoint / event).glob("[0-9]*"))

    def _progress(self) -> object:
        return self.query.returncode, len(self.query.members()), *map(self._seen, self.events)

    def is_complete(self) -> bool:
        """Return whether all messages have arrived."""
        return self.arrived() >= self.recorded

    def await_all(self, interrupted: str = "") -> str:
        """Wait until all messages have arrived, and start the query again if it ends. Return its error if that says what to do.

        The part that was killed while the query ran, if any, may have ended it.
        """
        query, again = self.query, 0
        while True:

            def is_over(query: Program = query) -> bool:
                self.keep_alive()
                return query.returncode is not None or self.is_complete()

            try:
                wait_for(is_over, progress=lambda: (self._progress(), self.arrived()), poll_s=1)
            except AssertionError:
                self.check(is_complete=True)
                raise
            if query.returncode is None:
                self.check(is_complete=True)
                return ""
            query.end()
            output, again = query.output(), again + 1
            if ADVICE.search(output) and not interrupted:
                return output
            # Spark also ends a query if a worker needs too long to start, as on a busy machine.
            assert again < 10, output
            assert interrupted or "failed to connect back" in output, f"the query ended: {output}"
            self.counts["queries ended"] += 1
            query = self.start()

    def begin(self) -> None:
        self.record()
        self.start()
        assert not (error := self.await_all()), error

    def round(self) -> dict[str, Any]:
        """Kill the query, let something happen, and wait until all has arrived. Return what happened."""
        killed = self.kill()
        if not killed.startswith(("driver", "command")):
            assert not (error := self.await_all(killed)), error
            return {"killed": killed}
        known = {
            each: may
            for each, may in self.incidents().items()
            if each != self.restore_older_checkpoint or self._older.exists()
        }
        incident = self.rng.choice(list(known))
        may_be_refused, ended, recorded = known[incident], self.query, self.recorded
        if incident != self.nothing:
            ended.end()
        for name in self.kept if may_be_refused else ():
            copy(self.root / name, self._saved / name)
        incident()
        self.start()
        # Otherwise, all might have arrived before this run does anything.
        self.record()
        if not may_be_refused and self.rng.random() < 0.3:
            time.sleep(self.rng.random() * 10)
            os.killpg(self.query.pid, signal.SIGKILL)
            self.counts["driver killed"] += 1
            self.start()
        error = self.await_all()
        ended.end()
        assert may_be_refused or not error, error
        if error:
            self.counts["refused"] += 1
            self.check(is_complete=False)
            for name in self.kept:
                copy(self._saved / name, self.root / name)
            self.recorded = recorded
            self.start()
            assert not (again := self.await_all()), again
        if self.rng.random() < 0.5:
            copy(self.checkpoint, self._older)
        return {"killed": killed, "then": incident.__name__, "refused": error.strip().rpartition("\n")[2][:300]}

    def finish(self) -> None:
        """Stop the query in order, and compare once more."""
        os.kill(self.query.pid, signal.SIGTERM)
        wait_for(lambda: self.query.returncode is not None, progress=self._progress)
        assert self.query.returncode == 0, self.query.output()
        self.check(is_complete=True)

    def close(self) -> None:
        for program in [*self._queries, *self.programs.values()]:
            program.end()


def copy(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``, also if that does not exist."""
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target)


# -- tables ------------------------------------------------------------------------------------------------------------


TABLE = "sea.tides"


def data_files(table: Path, table_format: str) -> list[str]:
    """Return the data files that are in a table, as the format's own log says."""
    if table_format == "parquet":
        return sink_log(table / "_spark_metadata")
    if table_format == "delta":
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(table).file_uris() if table.exists() else []
        except TableNotFoundError:
            return []
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy.exc import OperationalError

    if not (table / "catalog.db").exists():
        return []
    # Only the command creates the tables of the catalog.
    where = {"uri": f"sqlite:///{table / 'catalog.db'}", "warehouse": table.as_uri(), "init_catalog_tables": "false"}
    catalog = load_catalog("mainstem", type="sql", **where)
    try:
        return [task.file.file_path.removeprefix("file://") for task in catalog.load_table(TABLE).scan().plan_files()]
    except (NoSuchTableError, OperationalError):
        return []
    finally:
        catalog.close()


def sink_log(log: Path) -> list[str]:
    """Return the files in the log of Spark's file sink: those of the last compacted file, and of the ones after it."""
    numbers = {int(path.name.partition(".")[0]): path for path in log.glob("[0-9]*")}
    begin = max((number for number, path in numbers.items() if path.suffix), default=0)
    lines = [
        line for number in sorted(numbers) if number >= begin for line in numbers[number].read_text().split("\n")[1:]
    ]
    return [json.loads(line)["path"].removeprefix("file://") for line in lines if line]


def rows_of(files: list[str]) -> list[tuple[int, str, str | None]]:
    import duckdb

    if not files:
        return []
    with duckdb.connect() as connection:
        query = "select n, text, problem from read_parquet(?, hive_partitioning=false, union_by_name=true) order by n"
        return connection.execute(query, [files]).fetchall()


class Table(Trial):
    """A table that ``mainstem ingest`` loads from recordings."""

    kept = (*Trial.kept, "table")
    events = (*Trial.events, "table")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.table = self.root / "table"
        self.format = "parquet" if self.kind == "live" else self.kind
        self._rows: dict[str, int] = {}

    def command(self, master: str, options: dict[str, str], checkpoint: str = "checkpoint") -> list[str]:
        pairs = [each for name, value in options.items() for each in ("--source-option", f"{name}={value}")]
        return [
            *(sys.executable, "-m", "mainstem", "ingest", str(self.recordings), "--out", str(self.table), "--follow"),
            *("--format", self.format, "--codec", "json", "--schema", "n bigint, text string", "--master", master),
            *(["--table", TABLE] if self.format == "iceberg" else []),
            *("--checkpoint", str(self.root / checkpoint), "--trigger-interval", "0.2s", *pairs),
        ]

    def incidents(self) -> dict[Callable[[], None], bool]:
        return {
            self.nothing: False,
            self.forget_commit: False,
            self.lose_both: False,
            self.lose_checkpoint: True,
            self.lose_table: True,
            self.restore_older_checkpoint: True,
            self.replace: True,
        }

    def lose_table(self) -> None:
        shutil.rmtree(self.table)

    def lose_both(self) -> None:
        self.lose_checkpoint()
        self.lose_table()

    def replace(self) -> None:
        """Replace the recordings by others of the same streams."""
        shutil.rmtree(self.recordings)
        self.record()

    def second(self) -> None:
        """Start a second ingest beside the first one; it must be refused."""
        name = self.rng.choice(["checkpoint", "other"])
        second = Program(self.command(*self.drawn(), name), self.root / "second.log")
        try:
            wait_for(lambda: second.returncode is not None, poll_s=0.05)
            assert second.returncode, f"a second ingest is not refused: {second.output()}"
            assert ADVICE.search(second.output()), second.output()
        finally:
            second.end()
        self.counts["refused"] += 1

    def begin(self) -> None:
        super().begin()
        self.second()

    def arrived(self) -> int:
        import pyarrow.parquet as pq

        files = data_files(self.table, self.format)
        self._rows |= {file: pq.read_metadata(file).num_rows for file in set(files) - self._rows.keys()}
        return sum(self._rows[file] for file in files)

    def numbers(self) -> list[int]:
        """Return the numbers of the messages in the table. Raises AssertionError if a message is not as it was sent."""
        found = rows_of(data_files(self.table, self.format))
        for number, text, problem in found:
            assert (text, problem) == (json.loads(payload(number))["text"], None), f"message {number} has changed"
        self.counts["rows"] = len(found)
        return [row[0] for row in found]

    def check(self, *, is_complete: bool) -> None:
        numbers, wanted = self.numbers(), set(range(self.recorded))
        assert_once(numbers, wanted if is_complete else set(), wanted)


def assert_once(numbers: Iterable[int], wanted: set[int], possible: set[int]) -> None:
    """Check that each number is there once at most, all wanted ones are there, and none that was not possible."""
    counted = Counter(numbers)
    wrong = {
        "more than once": sorted(number for number, count in counted.items() if count > 1),
        "missing": sorted(wanted - counted.keys()),
        "never sent": sorted(counted.keys() - possible),
    }
    texts = [f"{name} {len(each)}: {each[:20]}" for name, each in wrong.items() if each]
    assert not texts, f"{counted.total()} messages, {'; '.join(texts)}"


class Live(Table):
    """A table of a running stream, which the query records itself. The publisher holds the stream while no query runs."""

    kept = ("checkpoint", "table")
    victims: ClassVar[dict[str, int]] = {**Trial.victims, "publisher": 3, "media driver": 2}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._published, self._lives, self._needed_life = self.root / "published", 0, 1
        self._wanted: set[int] = set()
        # The numbers that were sent by way of media drivers that were killed.
        self._exposed: set[int] = set()
        self._published.touch()

    def program(self, name: str) -> list[str]:
        if name == "media driver":
            return media_driver(self.root)
        self._lives += 1
        return [
            *OWN,
            "--publish",
            str(self.root / "aeron"),
            str(self.recordings),
            str(self._published),
            str(self._lives),
        ]

    def command(self, master: str, options: dict[str, str], checkpoint: str = "checkpoint") -> list[str]:
        command = super().command(master, options, checkpoint)
        flags = ("--stream", str(STREAM), "--dir", str(self.root / "aeron"), "--record-to", str(self.recordings))
        return [IPC if part == str(self.recordings) else part for part in command] + list(flags)

    def incidents(self) -> dict[Callable[[], None], bool]:
        known = super().incidents()
        # The recordings are the query's own.
        del known[self.replace]
        return known

    def accepted(self) -> set[int]:
        """Return the numbers that a publication has accepted, as far as its program could write that down."""
        lines = self._published.read_text().split("\n")
        return {int(line) for line in lines[:-1]}

    def record(self) -> None:
        """The publisher sends all the time. Note what it has sent."""
        self._wanted = self.accepted()

    def restart(self, name: str) -> None:
        super().restart(name)
        if name == "media driver":
            super().restart("publisher")
            self._needed_life = self._lives
            self._exposed = self.accepted()

    def is_complete(self) -> bool:
        if max(self._wanted, default=0) // LIFE < self._needed_life:
            self.record()
            return False
        return self.arrived() >= len(self._wanted - self._exposed) and self._wanted - self._exposed <= set(
            self.numbers()
        )

    def await_all(self, interrupted: str = "") -> str:
        self.record()
        return super().await_all(interrupted)

    def check(self, *, is_complete: bool) -> None:
        numbers, accepted = self.numbers(), self.accepted()
        recorded = {json.loads(message)["n"] for path in self.recordings.glob("*.rec") for _, message in reads(path)}
        wanted = {number for number in self._wanted if number not in self._exposed or number in recorded}
        # A publisher that was killed may not have written down its last number.
        lives = {number // LIFE for number in accepted} | set(range(1, self._lives + 1))
        last = {
            max((number for number in accepted if number // LIFE == life), default=life * LIFE - 1) for life in lives
        }
        assert_once(numbers, wanted if is_complete else set(), self.accepted() | accepted | {each + 1 for each in last})
        self.counts["lost with a media driver"] = len(self._exposed - recorded)
        self.recorded = len(accepted)

    def begin(self) -> None:
        Recorder(self.recordings).close()
        self.launch("media driver")
        self.launch("publisher")
        super().begin()


LIFE = 1_000_000
OWN = (sys.executable, "-m", "tests.spark.incidents")


def media_driver(root: Path) -> list[str]:
    return [sys.executable, "-m", "mainstem", "driver", "--dir", str(root / "aeron"), "--threading-mode", "SHARED"]


def publish(directory: str, recordings: str, published: str, life: int) -> None:
    """Publish numbers that begin with this life, write down which ones were accepted, and hold the stream for the query."""
    from mainstem import Aeron
    from mainstem.recording import RecorderSlot

    file, number = os.open(published, os.O_WRONLY | os.O_APPEND), life * LIFE
    with (
        Aeron.connect(directory) as aeron,
        aeron.add_subscription(IPC, STREAM) as held,
        aeron.add_exclusive_publication(IPC, STREAM) as publication,
        RecorderSlot(Path(recordings)) as slot,
    ):
        slot.add_subscription(held)
        while not publication.closed:
            slot.do_work(time.monotonic_ns())
            if publication.offer(payload(number)) > 0:
                os.write(file, b"%d\n" % number)
                number += 1
            time.sleep(0.1)


# -- channels ----------------------------------------------------------------------------------------------------------


class Sink(Trial):
    """A query that sends recordings to a channel, whose receiver records the messages with their keys."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._generation = 0
        # The numbers that may have been lost with a media driver, by generation.
        self._exposed: dict[int, set[int]] = {}
        self.channel = {"channel": IPC, "streamId": str(STREAM), "directory": str(self.root / "aeron")}
        if self.kind != "aeron":
            self.channel = {"channel": f"{self.kind}://localhost:{free_port()}"}
        other = "media driver" if self.kind == "aeron" else "receiver"
        self.victims = {**Trial.victims, "worker": 5, "executor": 5, other: 2}
        if self.kind == "aqueduct":
            from mainstem.aqueduct import make_certificates

            self.channel["ca"] = str(make_certificates(self.root / "certificates").ca)

    def program(self, name: str) -> list[str]:
        if name == "media driver":
            return media_driver(self.root)
        command = [
            sys.executable,
            "-m",
            "mainstem",
            "record",
            self.channel["channel"],
            "--out",
            str(self.root / "received"),
        ]
        if self.kind == "aeron":
            return [*command, "--stream", str(STREAM), "--dir", str(self.root / "aeron")]
        files = self.root / "certificates"
        tls = ["--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")]
        return [*command, "--keyed", *(tls if self.kind == "aqueduct" else [])]

    def drawn(self) -> tuple[str, dict[str, str]]:
        master, options = super().drawn()
        return self.rng.choice([master, f"local-cluster[2,{self.rng.randint(1, 2)},1024]"]), options

    def command(self, master: str, options: dict[str, str]) -> list[str]:
        told = {"master": master, "source": options, "channel": {**self.channel, "timeout": "120"}}
        places = {"recordings": str(self.recordings), "checkpoint": str(self.checkpoint)}
        applications = str(self.root / "applications")
        return [*OWN, "--send", json.dumps({**told, **places, "generation": self._generation, "log": applications})]

    def incidents(self) -> dict[Callable[[], None], bool]:
        return {self.nothing: False, self.forget_commit: False, self.lose_checkpoint: False}

    def lose_checkpoint(self) -> None:
        super().lose_checkpoint()
        self._generation += 1

    def restart(self, name: str) -> None:
        super().restart(name)
        if name == "media driver":
            self._exposed[self._generation] = set(range(self.recorded))
            super().restart("receiver")
            self.record()

    def received(self) -> dict[int, list[int]]:
        """Return the numbers of the messages of each generation, without those whose key has arrived before."""
        kept: dict[int, bytes] = {}
        count, repeats = 0, Deduplicator()
        for path in sorted((self.root / "received").glob("*.rec")):
            for reserved, message in reads(path):
                count += repeats.is_new(MessageKey.of_reserved_value(reserved))
                assert kept.setdefault(reserved, message) == message, f"a key for {kept[reserved]!r} and {message!r}"
        assert count == len(kept), f"Deduplicator keeps {count} of {len(kept)} messages"
        self.counts["duplicates dropped"] = repeats.dropped
        found: dict[int, list[int]] = {}
        for message in kept.values():
            generation, _, sent = message.partition(b"|")
            number = json.loads(sent)["n"]
            assert sent == payload(number), f"message {number} has changed"
            found.setdefault(int(generation), []).append(number)
        return found

    def arrived(self) -> int:
        return sum(map(len, self.received().values()))

    def _wanted(self) -> set[int]:
        return set(range(self.recorded)) - self._exposed.get(self._generation, set())

    def is_complete(self) -> bool:
        return self._wanted() <= set(self.received().get(self._generation, []))

    def check(self, *, is_complete: bool) -> None:
        found, possible = self.received(), set(range(self.recorded))
        for generation, numbers in found.items():
            is_current = is_complete and generation == self._generation
            assert_once(numbers, self._wanted() if is_current else set(), possible)
        lost = [exposed - set(found.get(generation, [])) for generation, exposed in self._exposed.items()]
        self.counts["lost with a media driver"] = sum(map(len, lost))
        self.counts["received"] = sum(map(len, found.values()))

    def begin(self) -> None:
        for name in (["media driver"] if self.kind == "aeron" else []) + ["receiver"]:
            self.launch(name)
        super().begin()

    def close(self) -> None:
        super().close()
        remove_work(self.root / "applications")


def send(told: dict[str, Any]) -> None:
    """Send the messages of the recordings until a signal says to stop, each behind the number of its generation."""
    from pyspark.sql import functions as f

    from mainstem.cli._process import stopping
    from mainstem.spark import create_session

    spark = create_session("incidents", master=told["master"])
    note_application(spark, Path(told["log"]))
    rows = spark.readStream.format("mainstem.recording").options(**told["source"]).load(told["recordings"])
    marked = rows.select(f.concat(f.encode(f.lit(f"{told['generation']}|"), "UTF-8"), "payload").alias("payload"))
    writer = marked.writeStream.format("mainstem.channel").options(**told["channel"])
    query = writer.option("checkpointLocation", told["checkpoint"]).trigger(processingTime="200 milliseconds").start()
    with stopping() as stop:
        while query.isActive and not stop.requested:
            time.sleep(0.05)
        if stop.requested:
            query.stop()
        query.awaitTermination()
    spark.stop()


# -- the command -------------------------------------------------------------------------------------------------------


KINDS: dict[str, type[Trial]] = {
    **dict.fromkeys(("parquet", "delta", "iceberg"), Table),
    "live": Live,
    **dict.fromkeys(("aeron", "bymux", "jmux", "aqueduct"), Sink),
}


def run(
    kind: str, root: Path, *, rounds: int, seed: int, say: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Run rounds of one kind; return the counts. Raises AssertionError."""
    trial = KINDS[kind](root, kind, random.Random(f"{seed} {kind}"))
    try:
        trial.begin()
        for number in range(rounds):
            begun = time.monotonic()
            try:
                done = trial.round()
            except AssertionError as error:
                raise AssertionError(f"{kind}, seed {seed}, round {number}: {error}") from error
            say({"kind": kind, "round": number, **done, "seconds": round(time.monotonic() - begun)})
        trial.finish()
        return {"kind": kind, "rounds": rounds, "messages": trial.recorded, **trial.counts}
    finally:
        trial.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="kill and mistreat queries, and count what arrives")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; without any, all")
    parser.add_argument("--rounds", type=int, default=10, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--publish", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.publish:
        *places, life = given.publish
        publish(*places, int(life))
        return 0
    if given.send:
        send(json.loads(given.send))
        return 0
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    failed = 0
    for kind in given.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="mainstem-incidents-") as directory:
            try:
                result = run(
                    kind,
                    Path(directory),
                    rounds=given.rounds,
                    seed=given.seed,
                    say=lambda line: print(json.dumps(line), flush=True),
                )
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {error}", flush=True)
            else:
                print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
