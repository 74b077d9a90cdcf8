"""``mainstem serve`` in its own process, killed and restarted while readers scan and a recorder writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("aiohttp")

from tests.support.ports import free_port
from tests.support.streams import Stream, record
from tests.support.waiting import STALL_S

from mainstem.errors import StoreError
from mainstem.recording import Recorder, messages, open_recordings
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.reader import RecordingReader
from mainstem.recording.served_archive import ServedArchive
from mainstem.store.http import HttpStore
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.system

TOKEN = "0123456789abcdef-token"


def start(directory: Path, *arguments: object, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """Start the server, and return the process and its URL."""
    command = [sys.executable, "-m", "mainstem", "serve", str(directory), *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    return process, process.stderr.readline().strip().rpartition(" ")[2]


@contextmanager
def serving(directory: Path, *arguments: object, **environment: str) -> Iterator[str]:
    process, url = start(directory, *arguments, **environment)
    try:
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(STALL_S) == 0
        process.stderr.close()  # type: ignore[union-attr]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Recorder(tmp_path / "rec", segment_length=1 << 20) as recorder:
        writer = recorder.start(
            session_id=1, stream_id=2, initial_term_id=0, term_buffer_length=65536, mtu_length=1408, join_position=0
        )
        record(writer, Stream(session_id=1, stream_id=2, initial_term_id=0), [b"%d" % i for i in range(100_000)])
        recorder.stop(writer)
    return tmp_path / "rec"


def numbers(reader: RecordingReader) -> Iterator[int]:
    for _, payload in messages(reader, reader.start_position, reader.end_position()):
        yield int(payload)


def test_recordings_are_read_over_tls_with_a_token_from_a_file(directory: Path, tmp_path: Path) -> None:
    from mainstem.aqueduct import make_certificates

    files = make_certificates(tmp_path / "certs")
    tls = ("--listen", "127.0.0.1:0", "--tls-cert", files.certificate, "--tls-key", files.key)
    with serving(directory, *tls, MAINSTEM_SERVE_TOKEN=TOKEN) as url:
        with pytest.raises(StoreError, match="a token is needed"):
            open_recordings(url, {"ca": str(files.ca)})
        (archive,) = open_archives(url, ReadOptions.parse({"ca": str(files.ca), "token": TOKEN}))
        with RecordingReader(archive, archive.recordings()[0]) as reader:
            assert sum(1 for _ in numbers(reader)) == 100_000
        archive.close()


@pytest.mark.long
def test_a_restarted_server_loses_and_repeats_nothing(directory: Path) -> None:
    port = free_port()
    process, url = start(directory, "--listen", f"127.0.0.1:{port}")
    store = HttpStore(url, retry=Retry(attempts=60, first_wait_s=0.1, max_wait_s=0.5))
    archive = ServedArchive(store)
    seen = []
    for kill in range(3):
        with RecordingReader(archive, archive.recordings()[0]) as reader:
            for number in numbers(reader):
                seen.append(number)
                if number == 1000 * (kill + 1):
                    process.kill()
                    process.wait()
                    process.stderr.close()  # type: ignore[union-attr]
                    archive.http.close()
                    process, _ = start(directory, "--listen", f"127.0.0.1:{port}")
        assert seen == list(range(100_000))
        seen.clear()
    archive.close()
    process.kill()
    process.wait()
    process.stderr.close()  # type: ignore[union-attr]


@pytest.mark.long
def test_a_live_reader_long_polls_for_new_messages(tmp_path: Path) -> None:
    stream = Stream()
    with Recorder(tmp_path / "rec", segment_length=65536) as recorder, serving(tmp_path / "rec", "-l", ":0") as url:
        writer = Stream().start(recorder)

        def write() -> None:
            for first in range(0, 20_000, 100):
                record(writer, stream, [b"%d" % i for i in range(first, first + 100)], time_ns=first)

        (archive,) = open_archives(url)
        assert isinstance(archive, ServedArchive)
        (descriptor,) = archive.recordings()
        writing = threading.Thread(target=write)
        writing.start()
        seen: list[int] = []
        position = 0
        with RecordingReader(archive, descriptor) as reader:
            while len(seen) < 20_000:
                end = archive.wait(descriptor, position, 20)
                assert end is not None
                seen += [int(payload) for _, payload in messages(reader, position, end)]
                position = end
        writing.join()
        assert seen == list(range(20_000))
        archive.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--listen", "0.0.0.0:0"), "--insecure"),
        (("--listen", "nonsense"), "--listen"),
        (("--tls-cert", "x"), "belong together"),
        (("--token-file", "/nowhere"), "No such file"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "No such file"),
    ],
)
def test_an_unservable_location_is_reported_in_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "mainstem", "serve", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        timeout=STALL_S,
    )
    assert result.returncode != 0
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text("raise ModuleNotFoundError(name='aiohttp')")
    result = subprocess.run(
        [sys.executable, "-m", "mainstem", "serve", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=STALL_S,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert result.returncode == 1
    assert "pip install 'mainstem[cli]'" in result.stderr
