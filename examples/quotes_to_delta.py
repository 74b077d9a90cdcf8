"""Load quotes from a recording into a Delta table, each exactly once, however often the job is killed and restarted.

    python examples/quotes_to_delta.py

Spark may run a micro-batch again after a failure. The table stores the id of the last micro-batch as a transaction of this job, so
a repeated micro-batch writes nothing. Needs ``pip install deltalake``, but no Java package of Delta.
"""

# pyarrow has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql.functions import col, from_json

from mainstem import Aeron, MediaDriver, OfferStatus
from mainstem.recording import Recorder
from mainstem.spark import create_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANNEL, STREAM, JOB = "aeron:ipc", 1001, "quotes-to-delta"
QUOTES = 3000


def record(directory: Path) -> None:
    """Publish quotes and record them."""
    with (
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(CHANNEL, STREAM) as subscription,
        aeron.add_exclusive_publication(CHANNEL, STREAM) as publication,
        Recorder(directory) as recorder,
    ):
        recorder.add_subscription(subscription)
        for number in range(QUOTES):
            quote = {"number": number, "symbol": f"S{number % 7}", "price": 100.0 + number % 13}
            while (position := publication.offer(json.dumps(quote).encode())) < 0:
                if OfferStatus(position).is_final:
                    raise RuntimeError(f"{publication!r}: {OfferStatus(position).name}")
                recorder.do_work()
        while publication.position not in recorder.active.values():
            recorder.do_work()


def append(batch: DataFrame, epoch: int, table: Path) -> None:
    """Write a micro-batch, unless the table already has it."""
    if DeltaTable.is_deltatable(str(table)) and (DeltaTable(table).transaction_version(JOB) or -1) >= epoch:
        return
    write_deltalake(
        table,
        batch.toArrow(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(JOB, epoch)]),
    )


def run(spark: SparkSession, recordings: Path, table: Path, checkpoint: Path) -> None:
    """Load new recorded quotes into the table, starting at the checkpoint."""
    source = spark.readStream.format("mainstem.recording").option("maxRowsPerTrigger", 1000).load(str(recordings))
    quote = from_json(col("payload").cast("string"), "number bigint, symbol string, price double")
    query = (
        source.select("recorded_at", quote.alias("q"))
        .select("recorded_at", "q.*")
        .writeStream.foreachBatch(lambda batch, epoch: append(batch, epoch, table))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        recordings, table, checkpoint = (Path(directory) / name for name in ("recordings", "table", "checkpoint"))
        record(recordings)
        spark = create_session(JOB)
        run(spark, recordings, table, checkpoint)
        # Simulate a crash between the table's commit and the checkpoint's: the last micro-batch runs again.
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        run(spark, recordings, table, checkpoint)
        numbers = DeltaTable(table).to_pyarrow_table(columns=["number"])["number"].to_pylist()
        print(f"{len(numbers)} rows in the table, {len(set(numbers))} different quotes of {QUOTES}")
        spark.stop()


if __name__ == "__main__":
    main()
