"""Whatever happens to a query, its checkpoint and its table, each message arrives once, or the query says what to do."""

from __future__ import annotations

import os
import random
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from tests.spark.test_channels import IPC, STREAM, TIMEOUT_S, recorder_of
from tests.support.ingesting import IngestTrial, finish, forget_last_batch, log, numbered
from tests.support.live_driver import wait_for

from mainstem import MediaDriver
from mainstem.errors import ConfigurationError
from mainstem.spark.ingest.query import start
from mainstem.spark.tables import drop_duplicates

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("MAINSTEM_FAULT_ROUNDS", "7"))
ADVICE = re.compile(r"continue with|delete the checkpoint|use the newer one|stop it first")


def division(rng: random.Random) -> dict[str, str]:
    """Draw the number of cores and the options that divide a micro-batch into tasks."""
    drawn = {"minPartitions": str(rng.randint(1, 5)), "partitionBytes": rng.choice(["1k", "4k", "512m"])}
    return {"parallelism": str(rng.randint(1, 6))} | {name: drawn[name] for name in drawn if rng.random() < 0.5}


class Incidents(IngestTrial):
    """A table, its checkpoint, and what happens to them between and during runs."""

    def __init__(self, spark: SparkSession, root: Path, table_format: str, rng: random.Random) -> None:
        super().__init__(spark, root, table_format)
        self._rng, self.logged = rng, 0
        self.checkpoint, self._saved, self._older = root / "checkpoint", root / "saved", root / "older"

    def record(self) -> None:
        count = self._rng.randint(1, 60)
        log(self.root / "recordings", numbered(range(self.logged, self.logged + count)))
        self.logged += count

    def interrupt(self) -> None:
        """Stop a query at any moment."""
        query = start(self.spark, self.options(follow=True, trigger_interval=0.0, source_options=division(self._rng)))
        with suppress(StreamingQueryException):
            query.awaitTermination(self._rng.random() * 3)
        query.stop()

    def repeat(self) -> None:
        """The driver ends between the table's commit and the checkpoint's."""
        if any((self.checkpoint / "commits").glob("[0-9]*")):
            forget_last_batch(self.checkpoint)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def lose_table(self) -> None:
        shutil.rmtree(self.table)

    def restore_older_checkpoint(self) -> None:
        if self._older.exists():
            shutil.rmtree(self.checkpoint)
            shutil.copytree(self._older, self.checkpoint)

    def copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        if source.exists():
            shutil.copytree(source, target)

    def round(self) -> str:
        """Let something happen, and run to the end. Return what happened, and whether the run was refused."""
        self.record()
        harmless, harmful = [self.interrupt, self.repeat], [self.lose_checkpoint, self.lose_table]
        incident = self._rng.choice([*harmless, *harmful, self.restore_older_checkpoint])
        for path in (self.table, self.checkpoint):
            self.copy(path, self._saved / path.name)
        incident()
        refusal = ""
        try:
            self.run(source_options=division(self._rng))
        except ConfigurationError as error:
            refusal = str(error)
        if refusal:
            assert incident not in harmless, refusal
            assert ADVICE.search(refusal), refusal
            for path in (self.table, self.checkpoint):
                self.copy(self._saved / path.name, path)
            self.run(source_options=division(self._rng))
        assert self.numbers() == list(range(self.logged)), incident.__name__
        if self._rng.random() < 0.5:
            self.copy(self.checkpoint, self._older)
        return f"{incident.__name__}{' (refused)' if refusal else ''}"


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_a_table_has_each_message_once_or_the_run_says_what_to_do(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    trial = Incidents(spark, tmp_path, table_format, random.Random(46))
    trial.record()
    trial.run()
    happened = [trial.round() for _ in range(ROUNDS)]
    assert any(each.endswith("(refused)") for each in happened), happened


def test_a_receiver_has_each_message_once_after_duplicates_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    rng, source, received = random.Random(46), tmp_path / "recordings", tmp_path / "received"
    logged = queries = 0
    for stream_id in range(1, 4):
        log(source, numbered(range(logged, logged + 100)), stream_id=stream_id)
        logged += 100
    expected: list[int] = []

    def run(driver: MediaDriver, *, fails: bool) -> None:
        def checked(position: int, payload: bytes) -> bytes:
            # The first tasks have sent their messages when a later one fails.
            if fails and position > 3000:
                raise RuntimeError("the host failed")
            return bytes(payload)

        # Spark would interpret the annotations of a function.
        failing = f.udf(lambda position, payload: checked(position, payload), "binary")
        rows = spark.readStream.format("mainstem.recording").options(**division(rng)).load(str(source))
        where: dict[str, Any] = {"channel": IPC, "streamId": STREAM, "directory": driver.directory}
        writer = rows.select(failing("position", "payload").alias("payload")).writeStream.format("mainstem.channel")
        options = {**where, "timeout": TIMEOUT_S, "checkpointLocation": str(tmp_path / "checkpoint")}
        writer = writer.options(**options).trigger(availableNow=True)
        if fails:
            with pytest.raises(StreamingQueryException, match="the host failed"):
                finish(writer.start)
        else:
            finish(writer.start)

    with MediaDriver.launch() as driver, recorder_of(driver, received):
        for number in range(ROUNDS):
            if number == ROUNDS // 2 or rng.random() < 0.2:
                # A new query sends everything again, as other messages.
                shutil.rmtree(tmp_path / "checkpoint", ignore_errors=True)
            is_new = not (tmp_path / "checkpoint").exists()
            log(source, numbered(range(logged, logged + 50)), stream_id=rng.randint(1, 3))
            logged, queries = logged + 50, queries + is_new
            expected += range(logged) if is_new else range(logged - 50, logged)
            if is_new and rng.random() < 0.7:
                run(driver, fails=True)
            run(driver, fails=False)
            if rng.random() < 0.5:
                forget_last_batch(tmp_path / "checkpoint")
                run(driver, fails=False)

        def kept() -> list[int]:
            rows = drop_duplicates(spark.read.format("mainstem.recording").load(str(received)))
            return sorted(int(bytes(row.payload)[6:-1]) for row in rows.select("payload").collect())

        wait_for(lambda: len(kept()) >= len(expected))
    assert kept() == sorted(expected)
    assert queries > 1
