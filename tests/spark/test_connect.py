"""Sources and sinks over Spark Connect: batch, streaming, tables, and the cause of an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.test_channels import listening
from tests.support import captures as make
from tests.support.streams import Stream, record

from mainstem.recording import Recorder, open_recordings

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]
COUNT = 500
STREAM = {"initial_term_id": -5, "term_buffer_length": 65536, "mtu_length": 1408}


def test_sources_and_sinks_work_over_spark_connect(tmp_path: Path) -> None:
    for dependency in ("grpc_status", "zstandard"):  # of `pyspark[connect]`
        pytest.importorskip(dependency)
    path = tmp_path / "recordings"
    with Recorder(path) as recorder:
        for session_id in (7, 8):
            writer = recorder.start(session_id=session_id, stream_id=1000 + session_id, join_position=0, **STREAM)
            record(writer, Stream(session_id=session_id), [bytes(100)] * COUNT, time_ns=1, step_ns=1000)
    # The server's workers must find the package, and its modules pyspark_mainstem_*, as this process does.
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths}
    capture = tmp_path / "a.pcap"
    capture.write_bytes(make.pcap([make.link(make.ip(make.udp(make.data_frame())), make.ETHERNET)] * 30))
    with listening("jmux", tmp_path / "sent") as sink:
        command = [sys.executable, "-m", "tests.spark.connect_program", str(path), str(capture), sink["channel"]]
        done = subprocess.run(
            [*command, str(tmp_path)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    # The batch, and the stream of both recordings.
    with open_recordings(tmp_path / "sent" / "recordings") as sent:
        assert sent.scan(["position"]).to_arrow().num_rows == 3 * COUNT
    results = json.loads(done.stdout.splitlines()[-1])
    option = results.pop("option")
    assert option.startswith("mainstem.recording has no option 'color'")
    assert results.pop("with").startswith("streamid can only be set for the whole table")
    nothing = f"{path}-none holds no recordings: there is no such directory"
    assert results == {
        "found by Spark": 2 * COUNT,
        "registered": COUNT,
        "t": COUNT,
        "l": 2 * COUNT,
        "v": COUNT,
        "frame in text": COUNT,
        "where": COUNT,
        "stream": 2 * COUNT,
        "stream of a table": COUNT,
        "capture": 30,
        "stream of a capture": 30,
        "sink": None,
        "sink of a stream": None,
        "location": nothing,
        "location of a stream": nothing,
    }
