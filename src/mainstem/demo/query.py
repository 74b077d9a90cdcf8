"""The Spark part of the demo: reads the growing recording, parses messages into typed columns, writes Parquet, computes figures."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

from mainstem.demo.encoding import row_column, spark_schema, unused
from mainstem.demo.figures import FLIGHTS_SQL, CarrierMonth, ColumnSummary, in_order, is_flights, summary_sql
from mainstem.spark import create_session
from mainstem.spark.tables import messages

if TYPE_CHECKING:
    from pathlib import Path

# A micro-batch takes about 0.1 s before its first row, so more of them would only take CPU time from the publisher.
TRIGGER = "400 milliseconds"
VIEW = "mainstem_demo"


def start_session(work: Path) -> Any:
    """Return a Spark session for this demo only. The JVM's standard error goes to ``spark.log``."""
    # py4j logs a call that Ctrl-C interrupted as an error with a stack trace, on its own logger or on the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    on_interrupt = signal.getsignal(signal.SIGINT)
    config = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.driver.memory": "1g",
    }
    spark = create_session(
        "mainstem demo", master="local[2]", config=config, log_level="ERROR", log_file=work / "spark.log"
    )
    # PySpark's handler would call the JVM in the middle of another call, over the same connection.
    signal.signal(signal.SIGINT, on_interrupt)
    return spark


class TableQuery:
    """The streaming query from the recordings to a Parquet table."""

    def __init__(self, spark: Any, table: Any, recordings: Path, output: Path, work: Path) -> None:
        self._spark, self._table, self._output = spark, table, output
        self.row, self.position = row_column(table.column_names), unused("_position", table.column_names)
        schema = spark_schema(table).replace("\\", "\\\\").replace("'", "\\'")
        frame = messages(spark.readStream.format("mainstem.recording").load(str(recordings)))
        parsed = frame.selectExpr("position", f"from_json(CAST(payload AS STRING), '{schema}') AS r")
        typed = parsed.selectExpr("r.*", f"position AS `{self.position}`")
        self._rows: dict[int, int] = {}
        self._query = (
            typed.writeStream.format("parquet")
            .option("path", str(output))
            .option("checkpointLocation", str(work / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def rows(self) -> int:
        """Return the number of rows written to the table so far."""
        for progress in self._query.recentProgress:
            self._rows[progress["batchId"]] = max(progress["numInputRows"], self._rows.get(progress["batchId"], 0))
        return sum(self._rows.values())

    def check(self) -> None:
        """Raise the error that ended the query, if it has ended."""
        if not self._query.isActive:
            error = self._query.exception()
            raise error if error is not None else RuntimeError("the query stopped by itself")

    def finish(self) -> None:
        """Wait until everything recorded is in the table, and stop."""
        self._query.processAllAvailable()
        self.rows()
        self._query.stop()

    def stop(self) -> None:
        """Stop immediately. Idempotent."""
        self._query.stop()

    def figures(self) -> list[Any]:
        """Return the figures computed from the data that arrived, in order."""
        arrived = self._spark.read.parquet(str(self._output))
        arrived.createOrReplaceTempView(VIEW)
        if is_flights(self._table):
            rows = self._spark.sql(FLIGHTS_SQL.format(table=VIEW)).collect()
            return in_order(CarrierMonth(*row) for row in rows)
        rows = self._spark.sql(summary_sql(self._table.column_names, VIEW)).collect()
        return sorted(ColumnSummary(*row) for row in rows)

    def files(self) -> list[str]:
        """Return the files that belong to the table. Failed tasks can leave other files in its directory."""
        names = self._spark.read.parquet(str(self._output)).inputFiles()
        return [name.removeprefix("file://") for name in names]
