from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mainstem.spark.tables import TABLES

ROOT = Path(__file__).resolve().parents[3]


def test_the_docs_have_every_column_and_every_option() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "write_table_docs.py", "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_every_column_has_a_meaning_and_every_row_a_name() -> None:
    for table in TABLES.values():
        assert all(column.meaning for column in table.columns)
        assert set(table.identity) <= set(table.names)
        assert len(set(table.names)) == len(table.names)
