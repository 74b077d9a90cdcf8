"""The larger examples run the way a reader would run them, and print their results."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.support.captures import ETHERNET, data_frame, ip, link, pcap, udp
from tests.support.doc_runner import ROOT
from tests.support.ports import with_own_ports

pytestmark = [pytest.mark.system, pytest.mark.long]

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str, timeout: float = 110) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / name
        program.write_text(with_own_ports((EXAMPLES / name).read_text()))
        command = [sys.executable, str(program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_reading_of_a_fleet_arrives_over_a_lossy_link() -> None:
    assert run("sensor_fleet.py") == "5 sensors, 1000 readings, each once and in order; loss was repaired: True\n"


def test_both_players_see_the_world_that_the_server_decides() -> None:
    pytest.importorskip("cryptography")
    assert run("game_server.py") == 'both see {"Ada": [3, 0], "Bob": [9, 0]}: True\n'


def test_a_slow_command_of_the_shell_delays_no_other() -> None:
    lines = run("remote_shell.py").splitlines()
    assert lines == ["HIGH TIDE - the slow one is still running: True", "exit status 2 - errors: True", "slow"]


def test_a_transfer_is_executed_once_even_if_its_request_is_retried() -> None:
    assert run("safe_retries.py").splitlines() == [
        "t1: executed",
        "t2: executed, as the bank says when asked",
        "t3: executed",
        "balance 42; each executed once: True",
    ]


def test_a_capture_is_replayed_into_a_program(tmp_path: Path) -> None:
    levels = [12, 98, 40, 7]
    frames = [data_frame(b"%d" % level, at=64 * n) for n, level in enumerate(levels)]
    order = [0, 2, 1, 1, 3]  # out of order, with one message repeated
    capture = tmp_path / "day.pcap"
    capture.write_bytes(pcap([link(ip(udp(frames[n])), ETHERNET) for n in order]))
    assert run("capture_into_test.py", str(capture), "1001") == "4 messages, three replays, the highest is 98 in each\n"


def test_polars_and_duckdb_agree_on_a_recording() -> None:
    pytest.importorskip("polars")
    polars, duckdb = run("polars_and_duckdb.py").splitlines()
    assert polars == duckdb == "[('GULL', 100, 397), ('TERN', 100, 398), ('WREN', 100, 399)]"


@pytest.mark.spark
def test_each_quote_is_once_in_the_delta_table_though_a_batch_ran_twice() -> None:
    pytest.importorskip("deltalake")
    assert (
        run("quotes_to_delta.py", timeout=800).splitlines()[-1]
        == "3000 rows in the table, 3000 different quotes of 3000"
    )


def test_the_examples_of_the_multiplexers_run() -> None:
    assert run("mux_requests.py").splitlines()[0] == "b'TIDE'"
    assert "ada.example" in run("mux_certificates.py")
    assert run("record_a_stream.py").splitlines()[-1].endswith("tide 4")
