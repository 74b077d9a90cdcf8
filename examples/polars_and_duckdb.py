"""Query a recording with Polars and DuckDB, without Spark and without converting it to another format.

python examples/polars_and_duckdb.py
"""

# pyarrow has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import tempfile

import duckdb
import polars as pl

from mainstem import Aeron, MediaDriver, open_recordings
from mainstem.recording import Recorder

CHANNEL, STREAM = "aeron:ipc", 1001
QUOTES = 300
SYMBOLS = ("GULL", "TERN", "WREN")


def record(directory: str) -> None:
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
            quote = {"symbol": SYMBOLS[number % len(SYMBOLS)], "price": 100 + number}
            publication.send(json.dumps(quote).encode(), timeout=5.0)
        while publication.position not in recorder.active.values():
            recorder.do_work()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        record(directory)
        with open_recordings(directory) as recordings:
            fields = pl.Struct({"symbol": pl.String, "price": pl.Int64})
            quotes = (
                recordings.to_polars()
                .select(pl.col("payload").cast(pl.String).str.json_decode(fields).alias("q"))
                .unnest("q")
            )
            print(
                quotes.group_by("symbol")
                .agg(pl.len().alias("quotes"), pl.col("price").max())
                .sort("symbol")
                .collect()
                .rows()
            )

            # DuckDB reads the object directly through Arrow's stream interface. It reads only the query's columns.
            database = duckdb.connect()
            database.register("messages", recordings.scan(["stream_id", "payload"]))
            print(
                database.sql(
                    """
                    select q ->> 'symbol' as symbol, count(*), max(cast(q ->> 'price' as bigint))
                    from (select cast(decode(payload) as json) as q from messages) group by all order by all
                    """
                ).fetchall()
            )


if __name__ == "__main__":
    main()
