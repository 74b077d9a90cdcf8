"""Whatever happens to the files of a store or to its responses while recordings are read: all of the rows, or an error."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.plain_server import plain_server
from tests.support.streams import Stream, record

from mainstem import open_recordings
from mainstem.errors import MainstemError
from mainstem.recording import Recorder, fetching
from mainstem.recording.catalog import CATALOG_FILE
from mainstem.store import retry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TERM = 65536
Rows = list[tuple[int, int, bytes]]


class Versions:
    """The files of a directory and of one that replaces it, and the rows of each."""

    def __init__(self, *paths: Path) -> None:
        self.files = [recorded(path, number + 3) for number, path in enumerate(paths)]
        self.rows = [read(path) for path in paths]


# What a server does to one response. `None` is the response as it should be.
RESPONSES = [
    None,
    "cut",
    "cut without a length",
    "whole",
    "half with its length",
    "part of the range",
    "other range",
    "longer range",
    "past the end",
    "missing",
    "unavailable",
    "reset",
]
# What happens to the files before a response. Entries that a catalog lacks are a problem of its own, which is logged.
CHANGES = [None, "replaced", "segments truncated", "truncated", "segments removed", "extended"]


class Bucket:
    """Files as S3 or a plain web server serves them, and what goes wrong with the next requests, in order."""

    def __init__(
        self, files: dict[str, bytes], other: dict[str, bytes], faults: list[tuple[str | None, str | None]]
    ) -> None:
        self.files, self.other, self.faults = dict(files), other, list(faults)
        self.version, self.lock = 1, threading.Lock()

    def next_fault(self) -> str | None:
        with self.lock:
            change, response = self.faults.pop(0) if self.faults else (None, None)
            if change is not None:
                self.change(change)
            return response

    def change(self, change: str) -> None:
        self.version += 1
        if change == "replaced":
            self.files = dict(self.other)
            return
        for name, data in list(self.files.items()):
            is_segment = name.endswith(".rec")
            if change == "segments removed" and is_segment:
                del self.files[name]
            elif is_segment if change == "segments truncated" else change == "truncated" and name != CATALOG_FILE:
                self.files[name] = data[: len(data) // 2]
            elif change == "extended":
                self.files[name] = data + bytes(1024)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket
    has_tags: bool

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if "list-type" in (query := parse_qs(parts.query)):
            return self.send(200, self.listing(query["prefix"][0]), {"Content-Type": "application/xml"})
        fault = self.bucket.next_fault()
        with self.bucket.lock:
            data, version = self.bucket.files.get(parts.path.rpartition("/")[2]), self.bucket.version
        if fault == "unavailable":
            return self.send(503, b"", {})
        if fault == "reset":
            self.close_connection = True
            return None
        if fault == "missing" or data is None:
            return self.send(404, b"", {})
        headers = {"ETag": f'"{version}"'} if self.has_tags else {}
        headers["Last-Modified"] = formatdate(1_700_000_000 + version, usegmt=True)
        if fault == "past the end":
            return self.send(416, b"", {"Content-Range": f"bytes */{len(data) // 4}"})
        range_ = self.headers.get("Range")
        if range_ is None or self.command == "HEAD" or fault == "whole":
            return self.send(200, data, headers, fault)
        if fault == "half with its length":
            return self.send(200, data[: len(data) // 2], headers)
        start, last = map(int, range_.removeprefix("bytes=").split("-"))
        if start >= len(data):
            return self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        last = min(last, len(data) - 1)
        if fault == "part of the range":
            last = (start + last) // 2
        elif fault == "other range":
            start, last = start + 32, last + 32
        elif fault == "longer range":
            last += 4096
        last = min(last, len(data) - 1)
        headers["Content-Range"] = f"bytes {start}-{last}/{len(data)}"
        return self.send(206, data[start : last + 1], headers, fault)

    def send(self, status: int, body: bytes, headers: dict[str, str], fault: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault == "cut without a length" and self.command != "HEAD":
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            is_cut = fault is not None and fault.startswith("cut")
            self.wfile.write(body[: len(body) // 2] if is_cut else body)
            self.close_connection = is_cut

    def listing(self, prefix: str) -> bytes:
        with self.bucket.lock:
            found = "".join(
                f"<Contents><Key>{prefix}{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>&quot;{self.bucket.version}&quot;</ETag><Size>{len(data)}</Size></Contents>"
                for name, data in sorted(self.bucket.files.items())
            )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


def recorded(directory: Path, initial_term_id: int) -> dict[str, bytes]:
    """Return the files of two recordings of three segments each."""
    with Recorder(directory, segment_length=TERM) as recorder:
        for session_id in (7, 8):
            stream = Stream(session_id=session_id, initial_term_id=initial_term_id)
            sent = [bytes([initial_term_id, session_id, number]) * 400 for number in range(120)]
            record(stream.start(recorder), stream, sent, time_ns=10**18)
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".lock"}


def read(location: Any, options: dict[str, str] | None = None) -> Rows:
    with open_recordings(location, options) as recordings:
        rows = recordings.scan(columns=["session_id", "position", "payload"]).to_arrow().to_pylist()
    return [(row["session_id"], row["position"], bytes(row["payload"])) for row in rows]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    return Versions(*(tmp_path_factory.mktemp("version") for _ in range(2)))


@contextmanager
def serving(kind: str, bucket: Bucket) -> Iterator[tuple[str, dict[str, str]]]:
    with plain_server(type("Served", (Handler,), {"bucket": bucket, "has_tags": kind != "HTTP with times"})) as url:
        if kind == "S3":
            yield "s3://bucket/tides", {
                "endpoint_override": url.removeprefix("http://"), "scheme": "http", "anonymous": "true",
            }  # fmt: skip
        else:
            yield f"{url}/tides", {}


steps = st.one_of(
    st.tuples(st.sampled_from(CHANGES), st.none()),
    st.tuples(st.none(), st.sampled_from(RESPONSES)),
)


@pytest.mark.parametrize("kind", ["HTTP with tags", "HTTP with times", "S3"])
@settings(max_examples=10, deadline=None)
@given(quiet=st.integers(0, 24), faults=st.lists(steps, min_size=1, max_size=4))
@example(quiet=6, faults=[("replaced", None)])
@example(quiet=7, faults=[("replaced", None)])
@example(quiet=8, faults=[("segments truncated", None)])
def test_all_rows_of_one_version_or_an_error(
    versions: Versions, kind: str, quiet: int, faults: list[tuple[str | None, str | None]]
) -> None:
    if kind == "S3":
        pytest.importorskip("obstore")
    bucket = Bucket(*versions.files, [(None, None)] * quiet + faults)
    with pytest.MonkeyPatch.context() as patch, serving(kind, bucket) as (location, options):
        patch.setattr(fetching, "FIRST_RANGE_BYTES", 8192)
        patch.setattr(fetching, "RANGE_BYTES", 32768)
        patch.setattr(retry, "FIRST_WAIT_S", 0.001)
        patch.setattr(retry, "MAX_WAIT_S", 0.001)
        try:
            rows = read(location, options)
        except MainstemError:
            assert faults != [(None, None)] * len(faults), "an error without a fault"
            return
    assert rows in versions.rows, len(rows)
