"""Recordings as a DataFrame, pruned by a condition before anything is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.spark.sources.options import parse_options
from mainstem.spark.sources.parallelism import parallelism_of
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
    """Read the rows of recordings that satisfy a condition, opening little else.

    The bounds that the condition puts on ``recording_id``, ``stream_id``, ``session_id``, ``position`` and ``recorded_at`` become
    options of the source when this is called. The condition is applied to the rows as well, so it may hold anything. Parts that
    depend on the time of the query, such as ``now()``, prune nothing.

    Args:
        spark: The session.
        path: The location as driver and executors see it: a directory, a URL, a pattern, or a list of them.
        where: The condition, as SQL or a ``Column``. None: all rows.
        schema: The columns to read, including those of the condition. None: all.
        streaming: Whether to return a streaming DataFrame.
        **options: Options of ``mainstem.recording``, which narrow further.

    Returns:
        A DataFrame, which may be used in any number of queries.

    Raises:
        ConfigurationError: An option does not exist or has an invalid value.

    Example:
        >>> df = recordings(spark, "/data/recordings", where="stream_id = 5 and position < 1000000")
    """

    def scan(reader: Any, pruning: dict[str, str]) -> DataFrame:
        shaped = reader if schema is None else reader.schema(schema)
        rows: DataFrame = shaped.format(FORMAT).options(**defaults | options | pruning | location).load()
        return rows

    location = (
        {"path": str(path)} if isinstance(path, str | Path) else {"paths": json.dumps([str(each) for each in path])}
    )
    # Here the session can be asked again: executors may have come since the source was registered.
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
    pruning = skipping | pruned_options(bounds_of(scan(spark.read, {}).where(where)), texts)
    replaced = {name.lower() for name in pruning}
    options = {name: value for name, value in options.items() if name.lower() not in replaced}
    return scan(start, pruning).where(where)
