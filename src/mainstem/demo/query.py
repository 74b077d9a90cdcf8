"""Spark's part: read the recording as it grows, parse the messages into typed columns, write Parquet, compute."""

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

# A micro-batch costs about 0.1 s before its first row: more of them would only take processor time from the publisher.
TRIGGER = "400 milliseconds"
VIEW = "mainstem_demo"


def start_session(work: Path) -> Any:
    """A session of this demo alone; the JVM's standard error goes to ``spark.log``."""
    # The bridge to the JVM logs a call that Ctrl-C broke off as an error with its stack, on its own logger or the root.
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
    # PySpark's own handler calls the JVM in the middle of another call, over the same connection.
    signal.signal(signal.SIGINT, on_interrupt)
    return spark


class TableQuery:
    """The streaming query: recordings to a Parquet table."""

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
        """How many rows have gone into the table so far."""
        for progress in self._query.recentProgress:
            self._rows[progress["batchId"]] = max(progress["numInputRows"], self._rows.get(progress["batchId"], 0))
        return sum(self._rows.values())

    def check(self) -> None:
        """Raises what ended the query, if it ended."""
        if not self._query.isActive:
            error = self._query.exception()
            raise error if error is not None else RuntimeError("the query stopped by itself")

    def finish(self) -> None:
        """Waits until all that is recorded is in the table, and stops."""
        self._query.processAllAvailable()
        self.rows()
        self._query.stop()

    def stop(self) -> None:
        """Stops at once; may be called twice."""
        self._query.stop()

    def figures(self) -> list[Any]:
        """The figures from what arrived, in order."""
        arrived = self._spark.read.parquet(str(self._output))
        arrived.createOrReplaceTempView(VIEW)
        if is_flights(self._table):
            rows = self._spark.sql(FLIGHTS_SQL.format(table=VIEW)).collect()
            return in_order(CarrierMonth(*row) for row in rows)
        rows = self._spark.sql(summary_sql(self._table.column_names, VIEW)).collect()
        return sorted(ColumnSummary(*row) for row in rows)

    def files(self) -> list[str]:
        """The files that belong to the table; others in its directory are left over from tasks that failed."""
        names = self._spark.read.parquet(str(self._output)).inputFiles()
        return [name.removeprefix("file://") for name in names]
