"""``mainstem compact`` works without pyspark, as its help says."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_SPARK = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
from mainstem.cli import main
main(sys.argv[1:])
"""


def compact(*words: str) -> str:
    command = [sys.executable, "-c", WITHOUT_SPARK, "compact", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_delta_table_is_compacted(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for i in range(3):
        deltalake.write_deltalake(str(tmp_path), pa.table({"a": [i]}), mode="append")
    assert "3 files replaced by 1" in compact(str(tmp_path))
    assert sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["a"].to_pylist()) == [0, 1, 2]


def test_an_iceberg_table_is_compacted(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    from mainstem.spark.formats.iceberg import open_catalog

    catalog = open_catalog(str(tmp_path))
    catalog.create_namespace("sea")
    table = catalog.create_table("sea.tides", schema=pa.schema([("a", pa.int64())]))
    for i in range(3):
        table.append(pa.table({"a": [i]}))
    catalog.close()
    assert "3 files replaced by 1" in compact(str(tmp_path), "--table", "sea.tides")
