"""The operator tools on a reference driver's directory: their numbers compared with those of the reference's own tools.

The tests look for the sample programs next to the driver that ``MAINSTEM_AERONMD`` names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout, wait_for

pytestmark = [pytest.mark.interop, pytest.mark.long]

SMALL_TERMS = {"AERON_TERM_BUFFER_LENGTH": "64k", "AERON_IPC_TERM_BUFFER_LENGTH": "64k"}
PATIENT = {"AERON_CLIENT_LIVENESS_TIMEOUT": "60s", "AERON_PUBLICATION_UNBLOCK_TIMEOUT": "90s"}
LOSS = {
    "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
    "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.05|seed=42|recv-msg-mask=0x3",
}
UDP = "aeron:udp?endpoint=localhost:{port}"
NO_END = 1_000_000_000

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def sample() -> Iterator[Start]:
    """Return ``sample("rate_subscriber", "-s", 7)``, which runs a sample program in a process that is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: object) -> subprocess.Popen[bytes]:
        binary = Path(os.environ.get("MAINSTEM_AERONMD", "/nowhere")).with_name(name)
        if not binary.exists():
            pytest.skip(f"{name} is not beside the reference driver")
        process = subprocess.Popen([binary, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def said_by(name: str, directory: Path, *arguments: str) -> str:
    binary = Path(os.environ["MAINSTEM_AERONMD"]).with_name(name)
    if not binary.exists():
        pytest.skip(f"{name} is not beside the reference driver")
    return subprocess.run([binary, "-d", directory, *arguments], capture_output=True, text=True, check=True).stdout


def mainstem(*arguments: object) -> Any:
    command = [sys.executable, "-m", "mainstem", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def why(directory: Path, **wanted: object) -> Any:
    """Return the diagnosis of the stream's publication (or image), once it is the one that the test waits for."""
    stall = StallTimeout(f"never {wanted}")
    kind = wanted.pop("kind", "publication")
    while True:
        answers = mainstem("why", "--dir", directory, "--duration", 0.5, "--samples", 10)["streams"]
        found = [a for a in answers if a["kind"] == kind and all(a[k] == v for k, v in wanted.items())]
        if found:
            return found[0]
        stall.check()
        time.sleep(0.2)


def test_stat_agrees_with_the_reference_tool(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    channel = UDP.format(port=free_port())
    sample("basic_subscriber", "-p", driver.directory, "-c", channel, "-s", 7)
    sample("basic_publisher", "-p", driver.directory, "-c", channel, "-s", 7, "-m", 3, "-l", 60)
    time.sleep(5)
    theirs = {}
    for line in said_by("AeronStat", driver.directory, "-w", "false").splitlines()[2:]:
        match = re.fullmatch(r"\s*(\d+):\s+([\d,-]+) - (.*)", line)
        if match:
            theirs[int(match[1])] = (int(match[2].replace(",", "")), match[3])
    ours = {c["id"]: (c["value"], c["label"]) for c in mainstem("stat", "--dir", driver.directory)["counters"]}
    assert len(theirs) > 60
    assert {i: label for i, (_, label) in ours.items()} == {i: label for i, (_, label) in theirs.items()}
    still = {i for i, (_, label) in ours.items() if re.match(r"(pub|snd|rcv|sub)-(pos|lmt|hwm|channel)", label)}
    assert len(still) >= 8
    assert {i: ours[i][0] for i in still} == {i: theirs[i][0] for i in still}


def test_loss_agrees_with_the_reference_tool(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS, **LOSS)
    channel = UDP.format(port=free_port())
    sample("rate_subscriber", "-p", driver.directory, "-c", channel, "-s", 7)
    publisher = sample("streaming_publisher", "-p", driver.directory, "-c", channel, "-s", 7, "-L", 64, "-m", NO_END)
    wait_for(lambda: mainstem("loss", "--dir", driver.directory))
    time.sleep(2)
    publisher.send_signal(signal.SIGSTOP)
    time.sleep(3)  # time to repair what was sent; nothing more is lost
    theirs = [
        line.split(",") for line in said_by("LossStat", driver.directory).splitlines() if re.match(r"\d+,\d+,", line)
    ]
    (ours,) = mainstem("loss", "--dir", driver.directory)
    (row,) = theirs
    publisher.send_signal(signal.SIGCONT)
    assert [ours["observation_count"], ours["total_bytes_lost"]] == [int(row[0]), int(row[1])]
    assert [str(ours["session_id"]), str(ours["stream_id"]), ours["channel"], ours["source"]] == row[4:]
    assert ours["observation_count"] > 0


def test_errors_agree_with_the_reference_tool(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    # 192.0.2.0/24 is reserved for documentation, so no machine has such an address to bind.
    sample("basic_subscriber", "-p", driver.directory, "-c", "aeron:udp?endpoint=192.0.2.1:24003", "-s", 7)
    ours = wait_for(lambda: mainstem("errors", "--dir", driver.directory))
    theirs = said_by("ErrorStat", driver.directory)
    (error,) = ours
    assert f"{error['observation_count']} observations from" in theirs
    assert error["text"].strip() in theirs
    assert "1 distinct errors observed" in theirs


def test_a_stopped_subscriber_is_blamed_over_udp_and_ipc_with_the_moment(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **PATIENT, **SMALL_TERMS)
    subscribers = []
    for channel, stream in ((UDP.format(port=free_port()), 7), ("aeron:ipc", 8)):
        subscribers.append(sample("rate_subscriber", "-p", driver.directory, "-c", channel, "-s", stream))
        sample("streaming_publisher", "-p", driver.directory, "-c", channel, "-s", stream, "-L", 64, "-m", NO_END)
    for stream in (7, 8):
        wait_for(
            lambda stream=stream: any(
                s["publication"] and s["publication"]["position"] > 0
                for s in mainstem("streams", "--dir", driver.directory, "--stream", stream)["streams"]
            )
        )
    stopped_ms = time.time() * 1000
    for subscriber in subscribers:
        subscriber.send_signal(signal.SIGSTOP)
    time.sleep(3)
    for stream in (7, 8):
        said = why(driver.directory, stream_id=stream, cause="slow subscriber")
        assert said["rule"] == "slow-subscriber"
        assert said["since_basis"] == "its client's last heartbeat"
        assert abs(said["since_ms"] - stopped_ms) < 2_000
        assert re.search(r"subscription \d+ of client \d+", said["sentence"])
        assert said["figures"]["pub_pos"] >= said["figures"]["pub_lmt"]
    for subscriber in subscribers:
        subscriber.send_signal(signal.SIGCONT)


def test_a_spy_that_stopped_is_blamed(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **PATIENT, **SMALL_TERMS)
    channel = UDP.format(port=free_port())
    sample("rate_subscriber", "-p", driver.directory, "-c", channel, "-s", 7)
    sample("streaming_publisher", "-p", driver.directory, "-c", channel, "-s", 7, "-L", 64, "-m", NO_END)
    time.sleep(1)
    spy = sample("rate_subscriber", "-p", driver.directory, "-c", f"aeron-spy:{channel}", "-s", 7)
    time.sleep(2)
    spy.send_signal(signal.SIGSTOP)
    assert "spies on this stream" in why(driver.directory, stream_id=7, cause="spy")["sentence"]
    spy.send_signal(signal.SIGCONT)


def test_no_receiver_and_an_incomplete_group_are_distinguished(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    sample("basic_publisher", "-p", driver.directory, "-c", UDP.format(port=free_port()), "-s", 7)
    control = free_port()
    group = f"aeron:udp?control=localhost:{control}|control-mode=dynamic|fc=min,g:/2"
    sample("basic_publisher", "-p", driver.directory, "-c", group, "-s", 8)
    member = f"aeron:udp?endpoint=localhost:{control + 1}|control=localhost:{control}|control-mode=dynamic"
    sample("basic_subscriber", "-p", driver.directory, "-c", member, "-s", 8)
    sample("basic_publisher", "-p", driver.directory, "-c", "aeron:ipc", "-s", 9)
    assert why(driver.directory, stream_id=7)["rule"] == "no-receiver"
    assert why(driver.directory, stream_id=8, rule="group-incomplete")["figures"]["receivers"] == 1
    assert why(driver.directory, stream_id=9)["rule"] == "no-subscriber"


def test_a_dead_driver_is_read_as_it_was_left(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    channel = UDP.format(port=free_port())
    sample("basic_publisher", "-p", driver.directory, "-c", channel, "-s", 7)
    why(driver.directory, stream_id=7)
    driver.kill()
    time.sleep(10.5)
    said = mainstem("why", "--dir", driver.directory, "--samples", 1)
    assert "gave its last heartbeat" in said["warnings"][0]
    assert {s["rule"] for s in said["streams"]} == {"driver-gone"}


def test_inspecting_changes_nothing(start_driver: Any, sample: Start, tmp_path: Path) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    channel = UDP.format(port=free_port())
    sample("basic_publisher", "-p", driver.directory, "-c", channel, "-s", 7)
    why(driver.directory, stream_id=7)
    driver.process.send_signal(signal.SIGSTOP)
    try:
        before = shutil.copytree(driver.directory, tmp_path / "before")
        for command in ("stat", "streams", "backlog", "errors", "loss"):
            mainstem(command, "--dir", driver.directory)
        own = mainstem("streams", "--dir", driver.directory)["streams"][0]["publication"]["registration_id"]
        mainstem("log", own, "--dir", driver.directory)
        mainstem("why", "--dir", driver.directory, "--samples", 3)
        for path in before.rglob("*"):
            if path.is_file() and path.name != "cnc.dat":
                assert path.read_bytes() == (driver.directory / path.relative_to(before)).read_bytes()
    finally:
        driver.process.send_signal(signal.SIGCONT)


def test_either_answers_the_other_s_pings(start_driver: Any, sample: Start) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    sample("cpong", "-p", driver.directory)
    found = mainstem("ping", "--dir", driver.directory, "--count", 50, "--warm-up", 5, "--timeout", 60)
    assert found["count"] == 50
    assert 0 < found["min_ns"] <= found["p50_ns"] <= found["p99.9_ns"] <= found["max_ns"]


def test_pub_and_sub_carry_lines_through_a_reference_driver(start_driver: Any, tmp_path: Path) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    lines = [f"{i} {'x' * (i % 3000)}".encode() for i in range(2000)]
    command = [sys.executable, "-m", "mainstem"]
    stream = [UDP.format(port=free_port()), "7", "--dir", str(driver.directory)]
    with (tmp_path / "got").open("wb") as got:
        reader = subprocess.Popen([*command, "sub", *stream, "--exit-at-end", "--timeout", "60"], stdout=got)
        subprocess.run([*command, "pub", *stream, "--timeout", "60"], input=b"\n".join(lines), check=True)
        assert reader.wait(STALL_S) == 0
    assert (tmp_path / "got").read_bytes().splitlines() == lines


def test_generated_messages_keep_their_pace_and_are_counted(start_driver: Any) -> None:
    driver = start_driver("reference", **SMALL_TERMS)
    command = [sys.executable, "-m", "mainstem"]
    stream = ["aeron:ipc", "7", "--dir", str(driver.directory)]
    reader = subprocess.Popen(
        [*command, "sub", *stream, "--stats", "--count", "2000", "--timeout", "60"], stderr=subprocess.PIPE, text=True
    )
    begin = time.monotonic()
    generate = ["--size", "100", "--rate", "1000", "--count", "2000", "--exclusive", "--timeout", "60"]
    subprocess.run([*command, "pub", *stream, *generate], check=True)
    assert time.monotonic() - begin >= 1.9
    _, said = reader.communicate(timeout=STALL_S)
    assert reader.returncode == 0
    assert "received 2,000 messages, 200,000 bytes" in said


def test_a_receiver_elsewhere_is_a_window_here_and_a_slow_subscriber_there(start_driver: Any, sample: Start) -> None:
    here, there = (start_driver("reference", **PATIENT, **SMALL_TERMS) for _ in range(2))
    channel = UDP.format(port=free_port())
    subscriber = sample("rate_subscriber", "-p", there.directory, "-c", channel, "-s", 7)
    sample("streaming_publisher", "-p", here.directory, "-c", channel, "-s", 7, "-L", 64, "-m", NO_END)
    time.sleep(2)
    subscriber.send_signal(signal.SIGSTOP)
    time.sleep(1)
    assert why(here.directory, stream_id=7, rule="remote-window")["cause"] == "flow-control window"
    assert why(there.directory, kind="image", stream_id=7, rule="image-slow-subscriber")["cause"] == "slow subscriber"
    subscriber.send_signal(signal.SIGCONT)


def test_an_unfinished_claim_is_blamed_on_the_publisher(start_driver: Any, sample: Start) -> None:
    from mainstem.aeron.client import Aeron, BufferClaim

    driver = start_driver("reference", **SMALL_TERMS)
    channel = UDP.format(port=free_port())
    sample("rate_subscriber", "-p", driver.directory, "-c", channel, "-s", 7)
    with Aeron.connect(driver.directory) as aeron, aeron.add_publication(channel, 7) as publication:
        publication.send(b"first", timeout=STALL_S)
        claim = BufferClaim()
        assert publication.try_claim(100, claim) > 0
        publication.send(b"behind it", timeout=STALL_S)
        said = why(driver.directory, stream_id=7, rule="unfinished-claim")
        assert said["cause"] == "publisher"
        claim.abort()
        why(driver.directory, stream_id=7, cause="nobody")


def test_losses_in_both_directions_are_reported_as_such(start_driver: Any, sample: Start) -> None:
    heavy = "rate=0.3|seed=42|recv-msg-mask=0x7"  # data, padding, and NAKs
    driver = start_driver(
        "reference", **SMALL_TERMS, **{**LOSS, "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": heavy}
    )
    channel = UDP.format(port=free_port())
    sample("rate_subscriber", "-p", driver.directory, "-c", channel, "-s", 7)
    sample("streaming_publisher", "-p", driver.directory, "-c", channel, "-s", 7, "-L", 64, "-m", NO_END)
    said = why(driver.directory, kind="image", stream_id=7, cause="loss")
    assert "data is missing at the receiver from position" in said["sentence"]
    assert said["figures"]["naks_sent"] > 0
