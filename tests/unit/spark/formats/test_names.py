"""Which column names a table can hold."""

from __future__ import annotations

from typing import Any

import pytest

types = pytest.importorskip("pyspark.sql.types")

from mainstem.errors import ConfigurationError  # noqa: E402
from mainstem.spark.formats.columns import check_names, split_by_name  # noqa: E402


def columns(value: Any) -> Any:
    """Return a struct for a dict, a list for a list, a map for a tuple, and a number for anything else."""
    if isinstance(value, dict):
        return types.StructType([types.StructField(name, columns(each)) for name, each in value.items()])
    if isinstance(value, list):
        return types.ArrayType(columns(value[0]))
    if isinstance(value, tuple):
        return types.MapType(types.StringType(), columns(value[0]))
    return types.LongType()


@pytest.mark.parametrize(
    ("written", "before", "held", "refused"),
    [
        ({"a.b": 0, "a": {"b": 0, "c": 0}}, {}, {"a.b": 0, "a": {"c": 0}}, ["a.b"]),
        ({"a": {"b": 0}, "a.b": 0}, {}, {"a": {"b": 0}}, ["a.b"]),
        ({"a": {"b": 0}, "n": 0}, {"a.b": 0}, {"n": 0}, ["a.b", "a"]),
        ({"l.element": 0, "l": [0]}, {}, {"l.element": 0}, ["l"]),
        ({"m.value.x": 0, "m": ({"x": 0, "y": 0},)}, {}, {"m.value.x": 0, "m": ({"y": 0},)}, ["m.value.x"]),
        ({"n\0": 0, "s": {"\0": 0}, "k": 0}, {}, {"k": 0}, ["n\0", "s.\0", "s"]),
        ({"a": 0, "a.": 0, ".a": 0, "": 0}, {"a": 0}, {"a": 0, "a.": 0, ".a": 0, "": 0}, []),
    ],
)
def test_a_column_is_not_held_if_another_one_has_its_name(
    written: Any, before: Any, held: Any, refused: list[str]
) -> None:
    assert split_by_name(columns(written), ".".join, columns(before)) == (columns(held), refused)


def test_a_name_that_a_format_cannot_store_is_rejected() -> None:
    check_names(columns({"a.b": 0, "a": {"b": 0}}), "Delta", lambda path: path)
    with pytest.raises(ConfigurationError, match=r"'a.b' cannot be in Iceberg tables"):
        check_names(columns({"a.b": 0, "a": {"b": 0}}), "Iceberg", ".".join)
