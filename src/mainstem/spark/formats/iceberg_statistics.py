"""The statistics of a data file in an Iceberg table's manifest, from the footer of the file.

pyiceberg makes them. It raises for a time that Python's types do not hold and for a text whose bound would end in a surrogate, and
it passes over row groups without bounds. A column with any of these has no bounds in the manifest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mainstem.spark.formats.text_bounds import upper_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def statistics(metadata: Any, schema: Any, properties: Mapping[str, str]) -> dict[str, Any]:
    """The statistics of a file as the arguments of a ``DataFile``.

    Args:
        metadata: The footer of the file.
        schema: The table's schema.
        properties: The table's properties, which choose what is stated of each column.
    """
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    plan = compute_statistics_plan(schema, dict(properties))
    ids = parquet_path_to_id_mapping(schema)
    for position in range(metadata.num_columns):
        field_id = ids[metadata.schema.column(position).path]
        plan[field_id] = _possible(plan[field_id], metadata, position)
    measured = data_file_statistics_from_parquet_metadata(metadata, plan, ids)
    for bounds in measured.column_aggregates.values():
        if isinstance(bounds.current_max, str) and bounds.trunc_length is not None:
            bounds.current_max = upper_text(bounds.current_max, bounds.trunc_length)
    stated: dict[str, Any] = measured.to_serialized_dict()
    return stated


def _possible(collector: Any, metadata: Any, position: int) -> Any:
    """What pyiceberg is to state of a column, reduced to what every row group of the file has."""
    from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode

    chunks = [metadata.row_group(i).column(position) for i in range(metadata.num_row_groups)]
    if not all(chunk.is_stats_set and chunk.statistics.has_null_count for chunk in chunks):
        return replace(collector, mode=MetricsMode(MetricModeTypes.NONE))
    if collector.mode.type != MetricModeTypes.NONE and not all(map(_has_bounds, chunks)):
        return replace(collector, mode=MetricsMode(MetricModeTypes.COUNTS))
    return collector


def _has_bounds(chunk: Any) -> bool:
    found = chunk.statistics
    if not found.has_min_max:
        return bool(found.null_count == chunk.num_values)
    try:
        found.min, found.max  # noqa: B018 - each read converts a value
    except OverflowError:
        return False
    return True
