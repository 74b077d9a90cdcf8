"""What does an archive cost: idle with very many recordings, and for each message that it records or replays?

``python benchmarks/archive.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from harness.archives import archiving, cpu_s, memory_mb
from harness.drivers import launched
from harness.options import parse_options
from harness.report import Report

from mainstem import Aeron, archive
from mainstem._internal.open_files_limit import raise_open_files_limit

MANY = "1,000 recordings, 100 replays, 100 sessions"
CHANNEL = "aeron:ipc?term-length=64k"
IDLE_S, QUICK_IDLE_S = 10.0, 2.0


def many(report: Report, directory: Path, driver: Path) -> None:
    recordings, replays, sessions = report.options.either((1000, 100, 100), (100, 10, 10))
    settings = {
        "max_concurrent_recordings": recordings,
        "max_concurrent_replays": replays,
        "segment_file_length": "64k",
        "low_storage_space_threshold": 0,
    }
    idle_s = report.options.either(IDLE_S, QUICK_IDLE_S)
    with ExitStack() as stack:
        server = stack.enter_context(archiving("mainstem", directory, driver, **settings))
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
        # A message for each recording in turn, as fast as the rest of this loop lets them go.
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


def main() -> None:
    raise_open_files_limit()
    os.environ.setdefault("AERON_TERM_BUFFER_SPARSE_FILE", "true")
    report = Report(options=parse_options(__doc__, [MANY], pairs=3))
    for part, measure in {MANY: many}.items():
        if part not in report.options.parts:
            continue
        for _ in range(report.options.pairs):
            with launched("mainstem") as driver, tempfile.TemporaryDirectory() as directory:
                measure(report, Path(directory) / "archive", driver.directory)
    report.print()


if __name__ == "__main__":
    main()
