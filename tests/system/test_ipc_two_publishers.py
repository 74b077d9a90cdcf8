"""Two processes publish to one stream concurrently and a third reads it: every message is accounted for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import STALL_S

from mainstem import MediaDriver
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType

pytestmark = [pytest.mark.system, pytest.mark.long]

PROGRAM = Path(__file__).parent / "programs" / "stream_of_numbers.py"
MESSAGES_EACH = 1_000_000


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(where: str, each: int) -> None:
    processes = [start("read", 2 * each, where)]
    try:
        reader = processes[0]
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        processes += [start("publish", number, each, where) for number in range(2)]
        outputs = [process.communicate(timeout=STALL_S) for process in processes]
        assert [(process.returncode, errors) for process, (_, errors) in zip(processes, outputs, strict=True)] == [
            (0, "")
        ] * 3
        assert json.loads(outputs[0][0]) == {"seen": 2 * each, "next": {"0": each, "1": each}}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_two_processes_publish_two_million_messages_to_a_third():
    with MediaDriver.launch() as driver:
        run(driver.directory, MESSAGES_EACH)


def test_two_processes_race_for_the_end_of_every_small_term(tmp_path: Path):
    parameters = LogParameters(
        correlation_id=1,
        session_id=1,
        stream_id=1001,
        initial_term_id=(1 << 31) - 3,
        term_length=65536,
        mtu=1408,
        log_type=LogType.CONCURRENT_PUBLICATION,
    )
    files = MappedFiles()
    path = str(tmp_path / "shared.logbuffer")
    buffer = files.create(path, parameters.log_length)
    LogBuffers.create(buffer, parameters).is_connected = True
    counters = files.create(path + ".counters", 4096)
    try:
        run(f"log:{path}", MESSAGES_EACH // 5)
    finally:
        files.unmap(buffer)
        files.unmap(counters)
