"""The client commands of ``mainstem archive`` against Java's archive and Mainstem's, each on a Mainstem driver."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout

import mainstem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
CHANNEL = "aeron:ipc?term-length=64k"
PAYLOADS = [b"tide %d" % number for number in range(500)]


class Commands:
    """The commands, with one archive and one driver."""

    def __init__(self, control: str, driver: object) -> None:
        self.control = control
        self.driver = driver

    def run(self, verb: str, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "mainstem", "archive", verb, *map(str, words)]
        line += ["--control", self.control, "--dir", str(self.driver)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def asked(self, verb: str, *words: object) -> Any:
        return json.loads(self.run(verb, *words, "--json").stdout)

    def until_ended(self) -> Any:
        stall = StallTimeout("the recording ends")
        while True:
            rows = self.asked("ls")
            if rows and rows[-1]["state"] == "ended":
                return rows[-1]
            stall.check()


@contextmanager
def served(kind: str, directory: Path, driver: object, *words: str) -> Iterator[str]:
    if kind == "java":
        java.require_java()
        with JavaArchive(directory, driver, has_driver=False) as archive:  # type: ignore[arg-type]
            yield archive.control
        return
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    with mainstem_archive(directory, driver, control, *words):  # type: ignore[arg-type]
        yield control


def send(driver: object, payloads: list[bytes] = PAYLOADS, channel: str = CHANNEL) -> None:
    with (
        mainstem.connect(driver) as aeron,  # type: ignore[arg-type]
        aeron.add_exclusive_publication(channel, 1001) as publication,
    ):
        for payload in payloads:
            publication.send(payload, timeout=20.0)
        stall = StallTimeout("the archive has read it")
        while publication.position_limit < publication.position:
            stall.check()


@pytest.mark.parametrize("kind", ["java", "mainstem"])
def test_a_stream_is_recorded_listed_replayed_and_deleted(
    start_driver: DriverFactory, tmp_path: Path, kind: str
) -> None:
    driver = start_driver("mainstem").directory
    with served(kind, tmp_path, driver) as control:
        archive = Commands(control.removeprefix("aeron:udp?endpoint="), driver)
        assert archive.asked("ls") == []
        assert archive.asked("start", CHANNEL, 1001)["subscription_id"] >= 0
        send(driver)
        row = archive.until_ended()
        assert (row["recording_id"], row["stream_id"], row["start_position"]) == (0, 1001, 0)
        assert row["end_position"] > 0
        assert archive.asked("ls", "--stream", 1002) == archive.asked("ls", "--since", "1s", "--channel", "udp") == []
        assert archive.asked("ls", "--since", "1h", "--channel", "ipc") == [row]

        expected = b"".join(each + b"\n" for each in PAYLOADS).decode()
        assert archive.run("replay", 0).stdout == expected
        assert archive.run("replay", 0, "--follow").stdout == expected, "a recording that has stopped ends it"
        assert archive.run("replay", 0, "--count", 3).stdout == "tide 0\ntide 1\ntide 2\n"
        lines = archive.run("replay", 0, "--from", 64 * 100, "--length", 640, "--output", "json").stdout.splitlines()
        assert [json.loads(line)["message"] for line in lines] == [f"tide {number}" for number in range(100, 110)]
        assert archive.run("replay", 0, "--replay-channel", "aeron:ipc").stdout == expected
        assert "500 messages" in archive.run("replay", 0, "--stats").stderr

        refused = archive.run("replay", 9, code=1)
        assert refused.stderr.strip() == "mainstem: the archive has no recording 9; `mainstem archive ls` lists them"
        assert refused.stdout == ""
        assert archive.run("stop", CHANNEL, 1002, code=1).stderr.count("\n") == 1
        assert "was not active" in archive.run("stop", "--recording", 0).stderr
        archive.run("stop", CHANNEL, 1001)

        archive.run("truncate", 0, 64 * 10)
        assert archive.run("replay", 0).stdout.count("\n") == 10
        archive.run("truncate", 0, 0)
        assert archive.run("replay", 0).stdout == ""
        archive.run("purge", 0)
        assert archive.asked("ls") == []
        assert "unknown recording" in archive.run("purge", 0, code=1).stderr.lower()


@pytest.mark.parametrize("kind", ["java", "mainstem"])
def test_recordings_are_replicated_from_and_into(start_driver: DriverFactory, tmp_path: Path, kind: str) -> None:
    other = "mainstem" if kind == "java" else "java"
    here, there = start_driver("mainstem").directory, start_driver("mainstem").directory
    with served(kind, tmp_path / "source", here) as source, served(other, tmp_path / "copy", there) as control:
        first, second = Commands(source, here), Commands(control, there)
        first.run("start", CHANNEL, 1001, "--auto-stop")
        send(here)
        row = first.until_ended()
        done = second.asked("replicate", 0, source.removeprefix("aeron:udp?endpoint="))
        assert (done["recording_id"], done["position"], done["signal"]) == (0, row["end_position"], "REPLICATE_END")
        assert second.run("replay", 0).stdout == first.run("replay", 0).stdout
        assert "7" in second.run("replicate", 7, source, code=1).stderr


def test_credentials_come_from_a_file_or_the_environment(
    start_driver: DriverFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = start_driver("mainstem").directory
    accepted, own, wrong = (tmp_path / name for name in ("accepted", "own", "wrong"))
    accepted.write_text("ops:secret\nreader:other\n")
    own.write_text("reader:other\n")
    wrong.write_text("reader:secret\n")
    with served("mainstem", tmp_path / "archive", driver, "--credentials-file", str(accepted)) as control:
        archive = Commands(control, driver)
        assert archive.asked("ls", "--credentials-file", own) == []
        for words in ((), ("--credentials-file", wrong)):
            refused = archive.run("ls", *words, code=1)
            assert "authentication rejected" in refused.stderr
            assert "secret" not in refused.stderr
        monkeypatch.setenv("MAINSTEM_ARCHIVE_CREDENTIALS", "ops:secret")
        assert archive.asked("ls") == []


def test_a_driver_is_started_if_there_is_none(tmp_path: Path, start_driver: DriverFactory) -> None:
    driver = start_driver("mainstem").directory
    with served("mainstem", tmp_path / "archive", driver) as control:
        Commands(control, driver).run("start", CHANNEL, 1001, "--auto-stop")
        send(driver)
        Commands(control, driver).until_ended()
        archive = Commands(control, tmp_path / "own")
        assert archive.run("replay", 0, "--with-driver").stdout.count("\n") == len(PAYLOADS)
        assert "no media driver" in archive.run("ls", code=1).stderr


def test_a_replay_whose_archive_is_killed_fails(start_driver: DriverFactory, tmp_path: Path) -> None:
    driver = start_driver("mainstem", AERON_IMAGE_LIVENESS_TIMEOUT="1s").directory
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    with (
        suppress(AssertionError),  # the archive does not shut down cleanly
        mainstem_archive(tmp_path / "archive", driver, control) as process,
        mainstem.connect(driver) as aeron,
        aeron.add_exclusive_publication(CHANNEL, 1001) as publication,
    ):
        archive = Commands(control, driver)
        archive.run("start", CHANNEL, 1001)
        publication.send(b"tide", timeout=20.0)
        line = [sys.executable, "-m", "mainstem", "archive", "replay", "0", "--follow", "--control", control]
        line += ["--dir", str(driver), "--timeout", "2s"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as replay:
            assert replay.stdout is not None
            assert replay.stdout.readline() == "tide\n"
            process.kill()
            _, said = replay.communicate(timeout=STALL_S)
    assert replay.returncode == 1
    assert said.strip().splitlines()[-1].startswith("mainstem: ")
    assert "Traceback" not in said
