"""Use sources and sinks over Spark Connect in a separate process, which cannot have a classic session too. Prints JSON.

Usage: ``python -m tests.spark.connect_program RECORDINGS CAPTURE CHANNEL WORK``, with two streams, 1007 and 1008, in the
recordings, and a server at the channel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from mainstem.spark import recordings, register, root_cause
from mainstem.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Callable


def main(path: str, capture: str, channel: str, work: Path) -> dict[str, Any]:
    """Return the result of each way of reading and writing, or the cause of its error."""
    results: dict[str, Any] = {}
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.warehouse.dir", str(work / "warehouse")).getOrCreate()

    def attempt(name: str, action: Callable[[], Any]) -> None:
        try:
            results[name] = action()
        except Exception as error:
            results[name] = root_cause(error)

    def load(location: str = path, **options: str) -> Any:
        return spark.read.format("mainstem.recording").options(**options).load(location)

    def count(statement: str, **frames: Any) -> int:
        return int(spark.sql(statement, **frames).collect()[0][0])

    def run(df: Any, name: str, form: str, **options: str) -> None:
        writer = df.writeStream.format(form).options(checkpointLocation=str(work / f"{name}-checkpoint"), **options)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(200)
        if (error := query.exception()) is not None:
            raise error

    def stream(df: Any, name: str) -> int:
        run(df, name, "parquet", path=str(work / name))
        return int(spark.read.parquet(str(work / name)).count())

    def streamed(location: str, source: str = "recording") -> Any:
        return spark.readStream.format(f"mainstem.{source}").load(location)

    attempt("found by Spark", lambda: load().count())
    register(spark)
    attempt("registered", lambda: load().where("stream_id = 1007").count())
    spark.sql(f"create table t using mainstem.recording options (path '{path}', streamId '1007')").collect()
    spark.sql(f"create table l using mainstem.recording location '{path}'").collect()
    spark.sql("create view v as select position from l where stream_id = 1008").collect()
    for name in ("t", "l", "v"):
        attempt(name, lambda name=name: count(f"select count(*) from {name}"))  # type: ignore[misc]
    attempt("frame in text", lambda: count("select count(*) from {x}", x=load(streamId="1008")))
    attempt("where", lambda: recordings(spark, path, where="stream_id = 1008").count())
    attempt("stream", lambda: stream(streamed(path), "out"))
    attempt("stream of a table", lambda: stream(spark.readStream.table("t"), "table"))
    attempt("capture", lambda: spark.read.format("mainstem.capture").load(capture).count())
    attempt("stream of a capture", lambda: stream(streamed(capture, "capture"), "packets"))
    sink, messages = "mainstem.channel", load(streamId="1007").select("payload")
    attempt("sink", lambda: messages.write.format(sink).option("channel", channel).mode("append").save())
    attempt("sink of a stream", lambda: run(streamed(path).select("payload"), "sent", sink, channel=channel))
    attempt("option", lambda: load(color="red").count())
    attempt("location", lambda: load(f"{path}-none").count())
    attempt("location of a stream", lambda: stream(streamed(f"{path}-none"), "nothing"))
    attempt("with", lambda: count("select count(*) from t with (streamId = '1008')"))
    spark.stop()
    return results


if __name__ == "__main__":
    ensure_java()
    print(json.dumps(main(*sys.argv[1:4], Path(sys.argv[4]))))
