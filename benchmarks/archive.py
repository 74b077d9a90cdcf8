"""What does an archive cost, idle with a large number of recordings, and for each message that it records or replays?

``python benchmarks/archive.py [--json] [--quick] [--pairs N] [--only TEXT] [--write]``.

Recording is compared with ``mainstem record`` and with Java's archive, which needs Java and the jar in build/reference. A replay
is compared with polling the same messages over IPC. There are two ratios for recording: one for the elapsed time, and one for the
CPU time of the recording process, which is nearly independent of other load on the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from harness.archives import NO_JAVA, archiving, cpu_s, has_java, memory_mb
from harness.drivers import launched
from harness.options import parse_options
from harness.processes import END_TIMEOUT_S
from harness.report import Report

from mainstem import Aeron, archive
from mainstem._internal.open_files_limit import raise_open_files_limit

OURS = "mainstem archive"
RECORD = "recording 1 KiB"
REPLAY = "replaying 1 KiB"
MANY = "very many: 1,000 active, 100 replays, 100 sessions"
CHANNEL = "aeron:ipc?term-length=64k"
IDLE_S, QUICK_IDLE_S = 10.0, 2.0
MESSAGE = bytes(range(256)) * 4
BATCH = [MESSAGE] * 64
COUNT, QUICK_COUNT = 200_000, 50_000
TERM = "term-length=16m"
STREAM, REPLAY_STREAM = 1001, 1002
SUBSCRIBER_POSITION = 4  # the type id of the subscriber position counter
STALL_S = 60.0


# -- recording -----------------------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """The cost of a message: elapsed time, and CPU time of the measured process."""

    wall_us: float
    cpu_us: float


def record_all(report: Report, directory: Path, pair: int) -> None:
    """Let each program record the same messages in turn. Reverse the order every other time."""
    programs = {
        OURS: lambda: record_with("mainstem", report, directory),
        "mainstem record": lambda: record_by_recorder(report, directory),
    }
    if has_java():
        programs["Java"] = lambda: record_with("java", report, directory)
    else:
        report.skipped["Java"] = NO_JAVA
    costs = {name: programs[name]() for name in (programs if pair % 2 else reversed(programs))}
    for name in programs:
        show(report, f"{name}, record", costs[name])
        if name != OURS:
            compare(report, RECORD, name, costs[OURS], costs[name], goal=1.0)


def record_with(kind: str, report: Report, directory: Path) -> Cost:
    with (
        launched("mainstem") as driver,
        archiving(kind, directory / kind, driver.directory, low_storage_space_threshold=0) as server,
        Aeron.connect(driver.directory) as aeron,
        archive.connect(server.control, aeron=aeron) as client,
    ):
        client.start_recording("aeron:ipc", STREAM)
        cost = publish_to(aeron, server.pid, report.options.either(COUNT, QUICK_COUNT))
    shutil.rmtree(directory / kind)
    return cost


def record_by_recorder(report: Report, directory: Path) -> Cost:
    out = directory / "recorder"
    with launched("mainstem") as driver, Aeron.connect(driver.directory) as aeron:
        words = ["record", "aeron:ipc", "--stream", str(STREAM), "--out", str(out), "--dir", str(driver.directory)]
        process = subprocess.Popen([sys.executable, "-m", "mainstem", *words], stderr=subprocess.DEVNULL)
        try:
            cost = publish_to(aeron, process.pid, report.options.either(COUNT, QUICK_COUNT))
        finally:
            process.terminate()
            process.wait(END_TIMEOUT_S)
    shutil.rmtree(out)
    return cost


def publish_to(aeron: Aeron, pid: int, count: int) -> Cost:
    """Publish twice as many messages. Measure the second half, from its first offer until the last message is recorded."""
    with aeron.add_exclusive_publication(f"aeron:ipc?{TERM}", STREAM) as publication:
        publish(publication, count)
        wait_recorded(aeron, publication.position)
        cpu, began = cpu_s(pid), time.perf_counter()
        publish(publication, count)
        wait_recorded(aeron, publication.position)
        return Cost(1e6 * (time.perf_counter() - began) / count, 1e6 * (cpu_s(pid) - cpu) / count)


def publish(publication: Any, count: int) -> None:
    sent, deadline = 0, time.monotonic() + STALL_S
    while sent < count:
        taken = publication.offer_many(BATCH[: count - sent])[0]
        sent += taken
        if not taken:
            assert time.monotonic() < deadline, "the messages are not taken"
            time.sleep(50e-6)


def wait_recorded(aeron: Aeron, position: int) -> None:
    counters, deadline = aeron.counters, time.monotonic() + STALL_S
    while True:
        found = [each for each in counters if counters.type_id(each) == SUBSCRIBER_POSITION]
        if any(f" {STREAM} " in counters.label(each) and counters.value(each) >= position for each in found):
            return
        assert time.monotonic() < deadline, "the messages are not recorded"
        time.sleep(200e-6)


def show(report: Report, name: str, cost: Cost) -> None:
    report.figure(f"{name}: passed [us/message]", cost.wall_us)
    report.figure(f"{name}: CPU [us/message]", cost.cpu_us)


def compare(report: Report, name: str, peer: str, ours: Cost, theirs: Cost, *, goal: float) -> None:
    for kind, its_goal, one, other in zip((", wall clock", ", CPU"), (goal, None), ours, theirs, strict=True):
        question = f"{name}{kind} / {peer}"
        report.pair(question, peer=peer, ours=one, theirs=other, goal=its_goal, smaller_is_better=True)


# -- replaying -----------------------------------------------------------------------------------------------------------


def replay_all(report: Report, directory: Path, pair: int) -> None:
    """Compare a local subscriber's reading of a replay with its reading of a publication of the same messages."""
    del pair
    count = report.options.either(COUNT, QUICK_COUNT)
    with (
        launched("mainstem") as driver,
        archiving("mainstem", directory / "archive", driver.directory, low_storage_space_threshold=0) as server,
        Aeron.connect(driver.directory) as aeron,
        archive.connect(server.control, aeron=aeron) as client,
    ):
        client.start_recording("aeron:ipc", STREAM, auto_stop=True)
        with aeron.add_exclusive_publication(f"aeron:ipc?{TERM}", STREAM) as publication:
            publish(publication, count)
            wait_recorded(aeron, publication.position)
        while client.stop_position(0) is None:
            time.sleep(0.01)
        for is_measured in (False, True):
            with client.replay(0, "aeron:ipc", REPLAY_STREAM) as replay:
                cpu = cpu_s(server.pid)
                wall_us = 1e6 * read(replay, count) / count
                ours = Cost(wall_us, 1e6 * (cpu_s(server.pid) - cpu) / count)
            if is_measured:
                show(report, "replay", ours)
        # The publisher runs in a separate process, as the archive does.
        words = [sys.executable, __file__, "--publish", f"{driver.directory}", "--pairs", "1"]
        with aeron.add_subscription("aeron:ipc", STREAM) as subscription:
            process = subprocess.Popen([*words, "--quick"] if report.options.quick else words)
            wall_us = 1e6 * read(subscription, count) / count
            process.wait(END_TIMEOUT_S)
        report.figure("IPC: passed [us/message]", wall_us)
        question = f"{REPLAY}, wall clock / IPC"
        report.pair(question, peer="IPC", ours=ours.wall_us, theirs=wall_us, goal=0.8, smaller_is_better=True)


def publish_until_taken(directory: str, count: int) -> None:
    """Publish all messages, and end when they have been read. This runs in the other process."""
    with Aeron.connect(directory) as aeron, aeron.add_exclusive_publication(f"aeron:ipc?{TERM}", STREAM) as publication:
        publish(publication, count)
        wait_recorded(aeron, publication.position)


def read(subscription: Any, count: int) -> float:
    """Poll ``count`` messages. Return the seconds between the first and the last."""
    found, began, deadline = 0, 0.0, time.monotonic() + STALL_S
    while found < count:
        new = len(subscription.poll_bytes(1000))
        found += new
        if new and not began:
            began = time.perf_counter()
        if not new:
            assert time.monotonic() < deadline, "no more messages come"
            subscription.wait_for_data(timeout=0.01)
    return time.perf_counter() - began


# -- very many -----------------------------------------------------------------------------------------------------------


def many(report: Report, directory: Path, pair: int) -> None:
    """Measure the archive's CPU time, memory and response times with a large number of recordings."""
    del pair
    recordings, replays, sessions = report.options.either((1000, 100, 100), (100, 10, 10))
    settings = {
        "max_concurrent_recordings": recordings,
        "max_concurrent_replays": replays,
        "segment_file_length": "64k",
        "low_storage_space_threshold": 0,
    }
    idle_s = report.options.either(IDLE_S, QUICK_IDLE_S)
    with ExitStack() as stack:
        os.environ.setdefault("AERON_TERM_BUFFER_SPARSE_FILE", "true")
        driver = stack.enter_context(launched("mainstem")).directory
        server = stack.enter_context(archiving("mainstem", directory / "archive", driver, **settings))
        aeron = stack.enter_context(Aeron.connect(driver))
        report.figure("memory, empty: own [MB]", memory_mb(server.pid)["own"])
        report.figure("idle CPU, empty [% of a core]", idle_cpu(server.pid, idle_s))
        clients = [stack.enter_context(archive.connect("aeron:ipc", aeron=aeron)) for _ in range(sessions)]
        report.figure("idle CPU, with the sessions [% of a core]", idle_cpu(server.pid, idle_s))
        streams = []
        for number in range(recordings):
            clients[number % sessions].start_recording("aeron:ipc", 1000 + number)
            streams.append(stack.enter_context(aeron.add_exclusive_publication(CHANNEL, 1000 + number)))
            streams[-1].send(bytes(200), timeout=30)
        ids = {each.stream_id: each.recording_id for each in clients[0].list_recordings()}
        deadline = time.monotonic() + 60
        while any(clients[0].recording_position(each) != 256 for each in ids.values()):
            assert time.monotonic() < deadline, "the recordings do not get on"
        report.figure("idle CPU, with the recordings too [% of a core]", idle_cpu(server.pid, idle_s))
        for number in range(replays):
            replay = clients[number % sessions].replay(ids[1000 + number], "aeron:ipc", 50_000 + number, length=None)
            stack.enter_context(replay)
        report.figure("idle CPU, with all [% of a core]", idle_cpu(server.pid, idle_s))
        for name, megabytes in memory_mb(server.pid).items():
            report.figure(f"memory, with all: {name} [MB]", megabytes)
        ask_all(report, clients, "idle")
        # Send a message to each recording in turn, as fast as the rest of this loop permits.
        ask_all(report, clients, "with messages", streams)


def idle_cpu(pid: int, seconds: float) -> float:
    time.sleep(min(1.0, seconds))
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def ask_all(report: Report, clients: list[archive.Client], when: str, streams: list = ()) -> None:
    times = []
    for _ in range(report.options.either(20, 5)):
        for number, client in enumerate(clients):
            for stream in streams[number :: len(clients)]:
                stream.offer(bytes(1000))
            began = time.perf_counter()
            client.recording_position(number)
            times.append(1e3 * (time.perf_counter() - began))
    times.sort()
    report.figure(f"request, {when}, median [ms]", times[len(times) // 2])
    report.figure(f"request, {when}, p99 [ms]", times[len(times) * 99 // 100])


PARTS = {RECORD: record_all, REPLAY: replay_all, MANY: many}


def main() -> None:
    raise_open_files_limit()
    options = parse_options(
        __doc__,
        PARTS,
        pairs=9,
        more=lambda parser: parser.add_argument("--publish", metavar="DIRECTORY", help="(internal)"),
    )
    if options.values.publish:
        publish_until_taken(options.values.publish, options.either(COUNT, QUICK_COUNT))
        return
    report = Report(options=options)
    for part in options.parts:
        for pair in range(min(options.pairs, 2) if part == MANY else options.pairs):
            with tempfile.TemporaryDirectory() as directory:
                PARTS[part](report, Path(directory), pair)
    report.print()


if __name__ == "__main__":
    main()
