"""`mainstem pub` and `mainstem sub` over a real driver: framed messages, what they print while waiting, and names."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.live_driver import wait_for
from tests.support.waiting import STALL_S

from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.tools.reading import DirectoryReader
from mainstem.aeron.tools.streams import clients
from mainstem.cli._drivers import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.system]
TIMEOUT_S = STALL_S


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    with MediaDriver.launch(threads=True) as driver:
        yield driver.directory


@contextmanager
def running(*arguments: str, environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and kill it if the test fails."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "mainstem", *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | (environ or {})) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("framing", ["json", "length-prefixed"])
def test_messages_of_any_bytes_go_from_sub_to_pub_unchanged(framing: str, directory: str, tmp_path: Path) -> None:
    messages = [b"high water", b"", b"two\nlines", bytes(range(256)), b"x" * 5000]
    first = tmp_path / "first"
    if framing == "json":
        documents: list[dict[str, Any]] = [{"message": "high water", "reserved_value": -7}, {"message": ""}]
        documents += [
            {"message": "two\nlines"},
            {"message_base64": base64.b64encode(messages[3]).decode()},
        ]
        first.write_text("".join(json.dumps(each) + "\n" for each in [*documents, {"message": "x" * 5000}]))
    else:
        first.write_bytes(b"".join(len(each).to_bytes(4, "big") + each for each in messages))
    source = first
    for number in range(2):  # the second round publishes what sub printed in the first
        with running("sub", "aeron:ipc", "--stream", "77", "--output", framing, "-n", "5", "--dir", directory) as sub:
            with running(
                "pub", "aeron:ipc", "77", "--input", framing, "--file", str(source), "--dir", directory, "-t", "60"
            ) as pub:
                assert pub.wait(timeout=TIMEOUT_S) == 0, pub.stderr and pub.stderr.read()
            output = sub.communicate(timeout=TIMEOUT_S)[0]
        source = tmp_path / f"again-{number}"
        source.write_bytes(output)
        if framing == "json":
            lines = [json.loads(line) for line in output.splitlines()]
            assert [line.get("message") for line in lines] == ["high water", "", "two\nlines", None, "x" * 5000]
            assert [line["reserved_value"] for line in lines] == [-7, 0, 0, 0, 0]
            assert {line["stream_id"] for line in lines} == {77}
            assert [line["position"] for line in lines] == sorted({line["position"] for line in lines})
        else:
            assert output == first.read_bytes()


def test_a_template_shows_position_and_message(directory: str) -> None:
    with running("sub", "aeron:ipc", "-s", "78", "--template", "%i %s|%p|%m", "-n", "1", "--dir", directory) as sub:
        with running("pub", "aeron:ipc", "-s", "78", "--dir", directory, "-t", "60") as pub:
            pub.communicate(b"tide\n", timeout=TIMEOUT_S)
        (line,) = sub.communicate(timeout=TIMEOUT_S)[0].splitlines()
    stream, session, position, message = line.replace(b"|", b" ").split(b" ")
    assert (stream, position, message) == (b"78", b"64", b"tide")
    assert int(session)


@pytest.mark.long
def test_a_waiting_command_says_what_it_waits_for(directory: str) -> None:
    with running("sub", "aeron:ipc", "79", "--dir", directory) as sub, DirectoryReader(directory) as reader:
        assert sub.stderr
        assert sub.stderr.readline() == b"mainstem: no publisher on aeron:ipc stream 79 yet; waiting\n"
        names = wait_for(lambda: {each.name for each in clients(take_snapshot(reader))} & {f"mainstem-sub-{sub.pid}"})
        assert names
        sub.send_signal(signal.SIGINT)
        assert sub.wait(timeout=TIMEOUT_S) == 0
    with running("pub", "aeron:ipc", "79", "--size", "8", "--dir", directory, "--timeout", "2s") as pub:
        lines = pub.communicate(timeout=TIMEOUT_S)[1].decode().splitlines()
    assert lines[0] == "mainstem: no subscriber connected yet; waiting for 2 s (--timeout)"
    assert "no subscriber connected within 2 s" in lines[-1]


def test_closing_the_pipe_of_sub_is_not_an_error(directory: str) -> None:
    with running("sub", "aeron:ipc", "85", "--dir", directory) as sub:
        assert sub.stdout
        sub.stdout.close()
        with running("pub", "aeron:ipc", "85", "--dir", directory, "-t", "60") as pub:
            pub.communicate(b"tide\n", timeout=TIMEOUT_S)
        assert sub.wait(timeout=TIMEOUT_S) == 0


def test_without_a_driver_running_ones_are_suggested(directory: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with running("pub", "aeron:ipc", "1", "--dir", missing, environ={"AERON_DRIVER_TIMEOUT": "1500ms"}) as pub:
        lines = pub.communicate(timeout=TIMEOUT_S)[1].decode().splitlines()
    assert lines[0] == f"mainstem: waiting for a media driver in {missing}, 1.5 s at most"
    for command in ("streams", "why", "metrics"):
        with running(command, "--dir", missing) as process:
            lines += process.communicate(timeout=TIMEOUT_S)[1].decode().splitlines()
    for line in lines[1:]:
        assert line.startswith(f"mainstem: no media driver in {missing}")
        assert f"`mainstem driver --dir {missing}` starts one" in line
        assert "chooses one that runs: /" in line


def test_a_message_that_is_too_long_is_reported(directory: str) -> None:
    channel = "aeron:ipc?term-length=64k"
    with (
        running("sub", channel, "80", "--dir", directory),
        running("pub", channel, "80", "--dir", directory, "-t", "60") as pub,
    ):
        error = pub.communicate(b"tide\n" + b"x" * 100_000 + b"\n", timeout=TIMEOUT_S)[1].decode()
    assert pub.returncode == 1
    assert "Traceback" not in error
    assert "message 2 or one soon after it" in error


@pytest.mark.parametrize(
    "command", [("pub", "aeron:ipc", "84"), ("ping", "--ping-channel", "aeron:ipc", "--pong-channel", "aeron:ipc")]
)
def test_a_generated_message_that_is_too_long_is_refused_before_anything_is_sent(
    command: tuple[str, ...], directory: str
) -> None:
    # Without a subscriber and without waiting for one, the command never builds a message that long.
    with running(*command, "--size", "10g", "--dir", directory, "--timeout", "0") as refused:
        said = refused.communicate(timeout=TIMEOUT_S)[1].decode()
    assert refused.returncode == 1
    assert "--size must be at most 8m on this channel (got 10g)" in said


def test_pong_responds_to_ping(directory: str) -> None:
    channels = (
        "--ping-channel",
        "aeron:ipc",
        "--pong-channel",
        "aeron:ipc",
        "--ping-stream",
        "771",
        "--dir",
        directory,
    )
    with running("pong", *channels) as pong:
        ping = [
            sys.executable,
            "-m",
            "mainstem",
            "ping",
            *channels,
            "-n",
            "5",
            "--warm-up",
            "0",
            "--timeout",
            str(TIMEOUT_S),
        ]
        done = subprocess.run([*ping, "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["count"] == 5
        pong.send_signal(signal.SIGINT)
        _, said = pong.communicate(timeout=TIMEOUT_S)
    assert b"aeron:ipc stream 771 on" in said
