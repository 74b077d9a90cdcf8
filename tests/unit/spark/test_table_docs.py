from __future__ import annotations

from mainstem.spark.tables import TABLES


def test_every_column_has_a_meaning_and_every_row_a_name() -> None:
    for table in TABLES.values():
        assert all(column.meaning for column in table.columns)
        assert set(table.identity) <= set(table.names)
        assert len(set(table.names)) == len(table.names)
