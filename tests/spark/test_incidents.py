"""A few kills of each kind of query in a process of its own; ``python -m tests.spark.incidents`` does more."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
pytest.importorskip("pyiceberg")

from tests.spark import incidents

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = int(os.environ.get("MAINSTEM_FAULT_ROUNDS", "0"))


@pytest.mark.spark
@pytest.mark.system
@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.skipif(not ROUNDS, reason="MAINSTEM_FAULT_ROUNDS asks for no rounds, which take minutes each")
@pytest.mark.parametrize("kind", incidents.KINDS)
def test_each_message_arrives_once_across_kills_or_the_run_says_what_to_do(kind: str, tmp_path: Path) -> None:
    result = incidents.run(kind, tmp_path, rounds=ROUNDS, seed=1)
    assert sum(count for name, count in result.items() if name.endswith("killed")) >= 2, result


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([0, 1, 2], r"missing 1: \[3\]"),
        ([0, 1, 1, 2, 3], r"more than once 1: \[1\]"),
        ([0, 1, 2, 3, 9], r"never sent 1: \[9\]"),
    ],
)
def test_a_lost_or_repeated_or_unknown_message_is_seen(numbers: list[int], reason: str) -> None:
    incidents.assert_once([0, 1, 2, 3], set(range(4)), set(range(5)))
    with pytest.raises(AssertionError, match=reason):
        incidents.assert_once(numbers, set(range(4)), set(range(5)))


def test_the_sink_log_is_read_from_its_last_compacted_file_on(tmp_path: Path) -> None:
    def written(name: str, *paths: str) -> None:
        lines = ["v1", *(json.dumps({"path": f"file:///table/{path}", "action": "add"}) for path in paths)]
        (tmp_path / name).write_text("\n".join(lines))

    written("0", "a")
    written("1.compact", "a", "b")
    written("2", "c", "d")
    (tmp_path / ".2.crc").touch()
    assert incidents.sink_log(tmp_path) == ["/table/a", "/table/b", "/table/c", "/table/d"]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_files_of_a_table_are_those_that_its_library_has_committed(table_format: str, tmp_path: Path) -> None:
    import deltalake
    import pyarrow as pa

    from mainstem.spark.formats.iceberg import open_catalog

    rows = pa.table({"n": [1, 2], "text": ["a", "b"], "problem": pa.array([None, None], pa.string())})
    table = tmp_path / "table"
    assert incidents.data_files(table, table_format) == []
    if table_format == "delta":
        deltalake.write_deltalake(table, rows)
    else:
        catalog = open_catalog(str(table))
        assert incidents.data_files(table, table_format) == []
        catalog.create_namespace("sea")
        catalog.create_table(incidents.TABLE, rows.schema).append(rows)
        catalog.close()
    files = incidents.data_files(table, table_format)
    assert incidents.rows_of([str(table / file) for file in files]) == [(1, "a", None), (2, "b", None)]
