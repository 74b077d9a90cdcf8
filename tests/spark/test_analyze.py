"""``mainstem analyze``: counts that match Wireshark's, a page that fits in a browser, errors in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.support.case_selection import long_after
from tests.support.frames import CHANNELS, Wire, everything, lossy_stream, to_arrow
from tests.support.live_driver import exchange
from tests.support.ports import free_port
from tests.support.streams import Stream, record
from tests.support.tshark import Capture
from tests.support.waiting import STALL_S

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.analysis import program
from mainstem.analysis.folds.path import CHANNEL
from mainstem.analysis.options import AnalyzeOptions, Inputs
from mainstem.analysis.program import needs_spark
from mainstem.errors import CaptureError
from mainstem.recording import Recorder
from mainstem.spark.java import ensure_java
from mainstem.spark.jobs import analyze as analyze_job
from mainstem.spark.report import analyze, in_parallel
from mainstem.spark.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOSS = {
    "udp_channel_incoming_interceptors": "loss",
    "udp_channel_transport_bindings_loss_args": "rate=0.08|seed=5",
    "term_buffer_length": 1 << 17,
}
MANUAL = "destinations of both sides"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def channels(mode: str, port: int) -> tuple[str, str]:
    """Return the publication's and the subscription's channel."""
    if mode == MANUAL:
        return "aeron:udp?control-mode=manual", "aeron:udp?control-mode=manual"
    if mode == "multicast":
        channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
        return channel, channel
    if mode == "multi-destination cast":
        control = f"control=127.0.0.1:{port}|control-mode=dynamic"
        return f"aeron:udp?{control}", f"aeron:udp?endpoint=127.0.0.1:{port + 1}|{control}"
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    return channel, channel


def dissected(path: Path, port: int) -> list[tuple[Any, ...]]:
    """Return (kind, its fields) of every Aeron frame, as tshark decodes them."""
    command = ["tshark", "-r", str(path), "-d", f"udp.port=={port},aeron", "-T", "json", "--no-duplicate-keys"]
    found = []
    for packet in json.loads(subprocess.run(command, capture_output=True, check=True).stdout):
        for name, value in packet["_source"]["layers"]["aeron"].items():
            for fields in value if isinstance(value, list) else [value]:
                length, *rest = _fields(name, fields)
                # tshark calls a heartbeat that ends its stream data.
                kind = "heartbeat" if name == "aeron.data" and length == 0 else name.removeprefix("aeron.")
                found.append((kind, length, *rest))
    return sorted(found)


def _fields(name: str, fields: dict[str, Any]) -> list[int]:
    def field(*names: str) -> int:
        text = next((fields[f"{name}.{each}"] for each in names if f"{name}.{each}" in fields), "0")
        value = int(text, 0)
        return value - (1 << 32) if value >= 1 << 31 else value

    return [
        field("frame_length"), field("flags"), field("session_id"), field("stream_id"),
        field("term_id", "consumption_term_id", "active_term_id"), field("term_offset", "consumption_term_offset"),
        field("length"), field("receiver_window"), field("term_length"), field("mtu"),
    ]  # fmt: skip


def told(directory: Path) -> list[tuple[Any, ...]]:
    """Return the same fields from the table of frames."""
    names = ["frame_length", "flags", "session_id", "stream_id", "term_id", "term_offset", "nak_length",
             "receiver_window", "term_length", "mtu"]  # fmt: skip
    kinds = {"RTTM": "rtt"}
    found = []
    for row in pq.read_table(directory).to_pylist():
        kind = "heartbeat" if row["type"] == 1 and row["frame_length"] == 0 else row["frame_type"]
        found.append((kinds.get(kind, kind.lower()), *(row[name] or 0 for name in names)))
    return sorted(found)


@pytest.mark.long
@needs_tshark
@pytest.mark.interop
@pytest.mark.parametrize("mode", long_after(1, ["unicast", "multicast", "multi-destination cast", MANUAL]))
def test_counts_are_those_of_tshark_field_by_field(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    port = free_port()
    publish, subscribe = channels(mode, port)
    destinations = [f"aeron:udp?endpoint=127.0.0.1:{port}"] if mode == MANUAL else []
    path = tmp_path / "capture.pcapng"
    with Capture(path, port), MediaDriver.launch(**LOSS) as driver, Aeron.connect(driver.directory) as aeron:
        exchange(aeron, publish, messages=400, subscription_channel=subscribe, destinations=destinations)
    theirs = dissected(path, port)
    options = AnalyzeOptions(inputs=(str(path),), out=tmp_path / "out")
    found = analyze(spark, options).as_json()
    assert told(tmp_path / "out" / "tables" / "frames") == theirs
    kinds = Counter(kind for kind, *_ in theirs)
    ours = dict(found["frames"]["aeron"])
    assert found["heartbeats"] == kinds["heartbeat"]
    assert ours["DATA"] == kinds["data"] + kinds["heartbeat"]
    for ours_name, their_name in (("PAD", "pad"), ("SETUP", "setup"), ("SM", "sm"), ("NAK", "nak"), ("RTTM", "rtt")):
        assert ours.get(ours_name, 0) == kinds[their_name]
    assert found["naks"] == kinds["nak"] > 0
    assert found["nak_bytes"] == sum(length for kind, *fields in theirs if kind == "nak" for length in fields[6:7])
    assert found["sessions"] == len({(f[2], f[3]) for kind, *f in theirs if kind == "setup"}) == 1
    assert found["bytes"]["payload"] == sum(f[0] - 32 for kind, *f in theirs if kind == "data")
    # The driver dropped frames after the capture point, and everything arrived in the end.
    assert {row["place"] for row in found["lost"]} == {"after the capture"}
    assert {row["status"] for row in found["lost"]} <= {"repaired", "passed"}
    assert found["retransmits"]["lost after"] > 0


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page for frames that cover every event, with names and texts that are wider than a phone's screen."""
    directory = tmp_path_factory.mktemp("report")
    rows = everything()
    far = lossy_stream(Wire(session_id=-1234567890, stream_id=2147483647))
    far.aeron("ERR", answer=True, error_code=13, text="a-reason-without-a-blank-" * 12, receiver_id=99)
    for row in far.rows:
        for end in ("src", "dst"):
            row[end] = f"2001:db8:1234:5678:9abc:def0:1234:{'1' if row[end] == '10.0.0.1' else '2'}"
    (directory / "frames").mkdir()
    pq.write_table(to_arrow(rows + far.rows), directory / "frames" / "0.parquet")
    options = AnalyzeOptions(inputs=(str(directory / "frames"),), out=directory / "out")
    analysis = analyze(spark, options)
    assert sorted(path.name for path in (directory / "out" / "tables").iterdir()) == sorted(
        set(TABLES) - {"messages", "recorded_sessions"}
    )
    assert json.loads((directory / "out" / "summary.json").read_text()) == json.loads(json.dumps(analysis.as_json()))
    return analysis.report


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


# The page reports about itself through its title. Anything beyond its window or its box is cut off for a reader.
PROBE = """<script>
const faults = [];
addEventListener('error', e => faults.push(String(e.message || e.target.src || e.target.href)), true);
addEventListener('load', () => {
  for (const each of document.querySelectorAll('details')) each.open = true;
  const box = e => e.getBoundingClientRect(), style = e => getComputedStyle(e);
  const beyond = e => box(e).right > innerWidth + 1 || box(e).left < -1;
  const clipped = e => !(e instanceof SVGElement) && e.scrollWidth > e.clientWidth + 1 && style(e).display != 'inline';
  const wide = [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length && (beyond(e) || clipped(e)));
  const cut = [...document.querySelectorAll('svg text')].filter(t =>
    box(t).left < box(t.ownerSVGElement).left - 1 || box(t).right > box(t.ownerSVGElement).right + 1);
  document.title = JSON.stringify({
    faults, width: innerWidth, page: document.documentElement.scrollWidth,
    wide: wide.map(e => e.outerHTML.slice(0, 80)), cut: cut.map(e => e.outerHTML),
    charts: document.querySelectorAll('svg').length, requests: performance.getEntriesByType('resource').map(e => e.name),
  });
});
</script>"""


def shown(page: Path, width: int, out: Path, *, dark: bool = False) -> dict[str, Any]:
    """Return an offline browser's report on the page at that width: errors, and elements that stick out."""
    copy = out / f"probe-{width}-{dark}.html"
    copy.write_text(page.read_text().replace("<head>", "<head>" + PROBE, 1))
    # A browser window cannot be as narrow as a phone, but a frame in it can.
    frame = out / f"frame-{width}-{dark}.html"
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe id="f" style="border:0;width:{width}px;height:2400px" src="{copy.name}">'
        "</iframe><script>setTimeout(() => document.title = document.getElementById('f').contentDocument.title, 1500)</script>"
    )
    picture = out / f"{width}{'-dark' if dark else ''}.png"
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files", "--virtual-time-budget=4000",
        f"--window-size={max(width, 500)},2400", f"--user-data-dir={out / 'profile'}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    ]  # fmt: skip
    dumped = subprocess.run([*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=STALL_S)
    subprocess.run([*command, f"--screenshot={picture}", frame.as_uri()], capture_output=True, timeout=STALL_S)
    head = dumped.stdout.partition("<title>")[2].partition("</title>")[0]
    console = [line for line in dumped.stderr.splitlines() if "CONSOLE" in line]
    text = head.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text) | {"console": console, "picture": picture}


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True), (800, False)])
def test_a_browser_shows_the_whole_page(report: Path, tmp_path: Path, width: int, dark: bool) -> None:
    seen = shown(report, width, tmp_path, dark=dark)
    assert seen["console"] == seen["faults"] == seen["requests"] == []
    assert (seen["width"], seen["page"]) == (width, width)
    assert seen["wide"] == seen["cut"] == []
    assert seen["charts"] >= 8
    assert seen["picture"].stat().st_size > 20_000


@pytest.mark.long
def test_a_page_needs_nothing_from_elsewhere(report: Path) -> None:
    text = report.read_text()
    for word in ("<script", '<link rel="stylesheet', "<img", "@import", "url(", "http://", "https://", "src="):
        assert word not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.long
def test_parallel_jobs_belong_to_the_job_group_of_their_caller(spark: SparkSession) -> None:
    context, name = spark.sparkContext, "spark.jobGroup.id"

    def job(number: int) -> tuple[str | None, int]:
        return context.getLocalProperty(name), spark.range(number).count()

    context.setJobGroup("tides", "all of them")
    try:
        assert in_parallel(spark, [partial(job, n) for n in range(6)]) == [("tides", n) for n in range(6)]
    finally:
        context.setLocalProperty(name, None)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        in_parallel(spark, [partial(job, 1), lambda: 1 // 0])


@pytest.mark.long
def test_a_large_and_a_small_input_have_the_same_report(
    spark: SparkSession, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = report.parent.parent / "frames"
    assert not needs_spark(Inputs(frames=[str(frames)]), {})
    monkeypatch.setattr(program, "LOCAL_FRAMES", 0)
    found = analyze(spark, AnalyzeOptions(inputs=(str(frames),), out=tmp_path)).as_json()
    told = json.loads((report.parent / "summary.json").read_text())
    paths = ("tables", "report")
    assert {k: v for k, v in json.loads(json.dumps(found)).items() if k not in paths} == {
        k: v for k, v in told.items() if k not in paths
    }
    for directory in (report.parent / "tables").iterdir():
        one, other = (
            spark.read.parquet(str(where / directory.name)) for where in (directory.parent, tmp_path / "tables")
        )
        assert one.schema == other.schema
        assert sorted(map(repr, one.collect())) == sorted(map(repr, other.collect()))


@pytest.mark.long
def test_the_channel_of_a_frame(spark: SparkSession) -> None:
    columns = "type int, src string, dst string, expected string"
    rows = spark.createDataFrame(CHANNELS, columns).selectExpr("*", "0 as flags", "8 as src_port", "9 as dst_port")
    assert [row.channel for row in rows.selectExpr(f"{CHANNEL} as channel").collect()] == [
        each[-1] for each in CHANNELS
    ]


@pytest.mark.long
def test_recordings_are_listed_with_their_problems(spark: SparkSession, tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    with Recorder(recordings) as recorder:
        for number in (1, 2):
            stream = Stream(session_id=number)
            writer = Stream(session_id=number).start(recorder)
            record(writer, stream, [b"x" * 100] * 50, time_ns=1_700_000_000_000_000_000)
    with (recordings / "1-0.rec").open("r+b") as file:
        file.seek(20 * 160)
        file.write(b"\x05\0\0\0")
    found = analyze(spark, AnalyzeOptions(inputs=(str(recordings),), out=tmp_path / "out")).as_json()
    assert [(r["recording_id"], r["messages"], r["data_bytes"]) for r in found["recordings"]] == [
        (0, 50, 5000),
        (1, 49, 4900),
    ]
    assert found["problems"]["corrupt"] == 1
    assert "2 recordings with 99 messages" in " ".join(found["verdict"])


def test_a_file_that_is_not_a_capture_is_a_problem_and_no_file_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.pcap").write_text("this is not a capture")
    found = analyze(spark, AnalyzeOptions(inputs=(str(tmp_path / "notes.pcap"),), out=tmp_path / "out")).as_json()
    assert found["problems"] == {"UNREADABLE_FILE": 1}
    assert found["verdict"][0].startswith("Nothing was recognized")
    with pytest.raises(CaptureError, match="no capture at"):
        analyze(spark, AnalyzeOptions(inputs=(str(tmp_path / "absent"),), out=tmp_path / "out"))


@pytest.mark.long
def test_the_command_prints_one_object_and_its_errors_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    pq.write_table(to_arrow(lossy_stream(Wire()).rows), tmp_path / "frames" / "0.parquet")
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    command = [sys.executable, "-m", "mainstem", "analyze", "--json", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, str(tmp_path / "frames")], capture_output=True, text=True, env=environment, timeout=STALL_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["sessions"], found["naks"]) == (1, 13)
    assert Path(found["report"]).exists()
    done = subprocess.run(
        [*command, str(tmp_path / "absent")], capture_output=True, text=True, env=environment, timeout=STALL_S
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"mainstem: no capture at {str(tmp_path / 'absent')!r}\n"


@pytest.mark.long
def test_spark_submit_runs_the_same(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    pq.write_table(to_arrow(lossy_stream(Wire()).rows), tmp_path / "frames" / "0.parquet")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    ensure_java()
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [submit, "--master", "local[2]", analyze_job.__file__, tmp_path / "frames", "--out", tmp_path / "out"]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment, timeout=STALL_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["naks"] == 13
    assert (tmp_path / "out" / "report.html").exists()
