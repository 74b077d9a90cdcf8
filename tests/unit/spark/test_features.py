"""What stands in for features that older PySpark versions lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from mainstem.errors import ConfigurationError
from mainstem.spark.sources import features
from mainstem.spark.sources.features import WithoutLimits, stream_reader
from mainstem.spark.sources.options import RecordingOptions
from mainstem.spark.sources.recording import RecordingSource, RecordingStreamReader

if TYPE_CHECKING:
    from pathlib import Path


def test_without_limits_a_stream_continues_where_the_last_micro_batch_ended(recordings: Path) -> None:
    source = RecordingSource({"path": str(recordings), "parallelism": "2"})
    names = StructType([StructField("position", LongType(), False)])

    def inner() -> RecordingStreamReader:
        return RecordingStreamReader(source._options(names), {"position": False})

    def count(parts: Any, reader: Any) -> int:
        return sum(batch.num_rows for part in parts for batch in reader.read(part))

    reader = WithoutLimits(inner())
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert count(reader.partitions(start, end), reader) == 1000
    assert reader.latestOffset() == end
    reader.stop()
    # After a restart whose last micro-batch was committed, Spark first asks for the latest offset.
    again = WithoutLimits(inner())
    latest = again.latestOffset()
    assert latest == end
    assert count(again.partitions(end, latest), again) == 0
    again.stop()


@pytest.mark.parametrize("name", ["maxBytesPerTrigger", "maxrowspertrigger", "minBytesPerTrigger"])
def test_a_spark_version_without_limits_refuses_their_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "HAS_READ_LIMITS", False)
    with pytest.raises(ConfigurationError, match=r"(?i)" + name + r": Spark .* has no limits for Python sources"):
        stream_reader(object(), {name: "1"}, RecordingOptions)  # type: ignore[arg-type]
    assert isinstance(stream_reader(object(), {}, RecordingOptions), WithoutLimits)  # type: ignore[arg-type]
