"""Recordings as a DataFrame that a condition narrows before anything is opened: in batch and in streaming, right always."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.spark.parallelism import parallelism_of
from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.pushdown import bounds_of, pruned_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "mainstem.recording"


def recordings(
    spark: SparkSession,
    path: Path | str | Sequence[Path | str],
    *,
    where: Column | str | None = None,
    schema: StructType | str | None = None,
    streaming: bool = False,
    **options: Any,
) -> DataFrame:
    """``mainstem.recording`` of a directory, with the rows of which ``where`` is true, and little else read.

    What the condition requires of recording_id, stream_id, session_id, position and recorded_at is turned into options of the
    source when this is called; the condition is applied to the rows as well, so it may hold anything. The DataFrame may be
    used in as many queries as one likes, at once too, with further filters or without. ``options`` are the source's own and
    narrow further; ``schema`` names the columns that are read, among them those of the condition. What moves with the time
    of a query, as ``now()`` does, narrows nothing. Raises ConfigurationError for options that are wrong.
    """

    def scan(reader: Any, narrowing: dict[str, str]) -> DataFrame:
        shaped = reader if schema is None else reader.schema(schema)
        rows: DataFrame = shaped.format(FORMAT).options(**defaults | options | narrowing | location).load()
        return rows

    location = (
        {"path": str(path)} if isinstance(path, str | Path) else {"paths": json.dumps([str(each) for each in path])}
    )
    # Here the session can be asked anew: executors may have come since the source was registered.
    parallelism = parallelism_of(spark)
    defaults = {} if parallelism is None else {"parallelism": str(parallelism)}

    start = spark.readStream if streaming else spark.read
    if where is None:
        return scan(start, {})
    texts = {name: str(value) for name, value in options.items()}
    # With a schema Spark asks for nothing more, and a wrong option would be reported as something else below.
    parse_options(texts | location)
    # Where it is not known when a row was recorded, no condition on that time is true.
    has_times = any(name.lower() in ("fromtime", "totime") for name in texts)
    skipping = {} if has_times else {"unknownTimes": "skip"}
    narrowing = skipping | pruned_options(bounds_of(scan(spark.read, {}).where(where)), texts)
    replaced = {name.lower() for name in narrowing}
    options = {name: value for name, value in options.items() if name.lower() not in replaced}
    return scan(start, narrowing).where(where)
