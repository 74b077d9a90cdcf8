from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.all_types_table import ODD
from tests.support.streams import Stream, record
from tests.support.waiting import wait_for

from mainstem.demo import check
from mainstem.demo.encoding import encoded
from mainstem.demo.figures import source_figures
from mainstem.demo.query import TableQuery
from mainstem.demo.table import normalize
from mainstem.recording import Recorder, open_recordings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.system]

TIMEOUT_S = 500  # for a whole demo


@pytest.mark.long
def test_a_table_of_every_type_arrives_value_for_value(spark: SparkSession, tmp_path: Path) -> None:
    table = normalize(ODD)
    recordings = tmp_path / "recording"
    with Recorder(recordings) as recorder:
        stream = Stream()
        writer = Stream().start(recorder)
        record(writer, stream, [text.encode() for array in encoded(table) for text in array.to_pylist()])
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        query = TableQuery(spark, table, recordings, tmp_path / "table", tmp_path / "work")
        try:
            query.finish()
            assert query.rows() == 3
            assert query.figures() == source_figures(table)
        finally:
            query.stop()
    found = check.compare(check.read_files(query.files()), table, row=query.row, position=query.position)
    assert found.unequal_columns == ()
    assert found.is_clean


def start_demo(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mainstem", "demo", "--json", "--out", str(out), *options]
    environment = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )


def left_of(process: subprocess.Popen[str]) -> list[Any]:
    """Return what the demo should have removed: members of its process group, and files in shared memory."""
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _parent, group = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == process.pid and state != "Z":
            members.append(name)
    return members + [name for name in os.listdir("/dev/shm") if name.startswith(f"mainstem-{process.pid}-")]


@pytest.mark.long
def test_the_demo_loses_nothing_over_a_lossy_network(tmp_path: Path) -> None:
    process = start_demo(tmp_path / "out", "--count", "4000", "--loss", "0.1")
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    result = json.loads(output)
    assert (result["offered"], result["received"], result["rows"]) == (4000, 4000, 4000)
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    assert result["tables_equal"] is True
    assert result["datagrams_dropped"] > 0
    assert result["naks"] > 0
    assert (tmp_path / "out" / "report.html").read_text().count("<svg") == 4
    with open_recordings(result["recording"]) as recordings:
        assert recordings.scan().to_arrow().num_rows == 4000
    assert errors == ""
    assert left_of(process) == []


@pytest.mark.long
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start_demo(tmp_path / "out", "--loss", "0.3")
    # Interrupt in the middle, when the JVM and the driver are running and the table is being written.
    wait_for(lambda: process.poll() is not None or list((tmp_path / "out" / "work").glob("recording/*.rec")))
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output, errors) == (130, "", "")
    wait_for(lambda: not left_of(process), progress=lambda: left_of(process))


def test_a_wrong_option_is_reported_in_one_sentence(tmp_path: Path) -> None:
    process = start_demo(tmp_path / "out", "--loss", "1.5")
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output) == (1, "")
    assert errors == "mainstem: --loss: 1.5 is not in 0 to 1 (0.2 drops a fifth)\n"
