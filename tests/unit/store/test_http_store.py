"""The store behind an http(s) URL: ``mainstem serve``, and plain servers with and without range requests."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.plain_server import plain_server

pytest.importorskip("aiohttp")

from tests.support.recording_server import RunningServer
from tests.support.waiting import STALL_S
from tests.unit.serve.conftest import Live

from mainstem.errors import ConfigurationError, StoreError
from mainstem.serve.access import Access
from mainstem.store import http, open_store
from mainstem.store.http import HttpStore
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOKEN = "0123456789abcdef-token"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    directory = Live(tmp_path / "rec")
    directory.add(2000)
    yield directory
    directory.close()


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSTEM_SERVE_TOKEN", raising=False)
    monkeypatch.delenv("MAINSTEM_SERVE_TOKEN_HOST", raising=False)


def impatient(url: str, **options: str) -> HttpStore:
    return HttpStore(url, options, retry=Retry(attempts=3, sleep=lambda _: None))


def test_files_are_listed_sized_and_read_as_they_are(live: Live) -> None:
    with RunningServer(live.path) as server:
        store = open_store(server.url)
        files = {file.name: file.size for file in store.list()}
        unlisted = {"mainstem-recorder.lock", "archive-mark.dat"}
        assert files == {p.name: p.stat().st_size for p in live.path.iterdir() if p.name not in unlisted}
        assert [f.name for f in store.list("0.")] == ["0.mainstem-positions"]
        data = (live.path / "0-65536.rec").read_bytes()
        assert store.size("0-65536.rec") == len(data)
        assert store.read("0-65536.rec", 100, 5000) == data[100:5000]
        assert store.read("0-65536.rec", 65000, 1 << 20) == data[65000:]
        assert store.read("0-65536.rec", 1 << 20, 1 << 21) == b""
        assert store.read("0-65536.rec", 5, 5) == b""
        for name in ("0-1.rec", "nothing"):
            with pytest.raises(FileNotFoundError):
                store.read(name, 0, 1)
            with pytest.raises(FileNotFoundError):
                store.size(name)
        assert list(store.directories()) == []
        assert store.local_path("0-0.rec") is None
        store.close()


def test_requests_go_over_one_connection_that_is_kept(live: Live) -> None:
    with RunningServer(live.path) as server:
        store = HttpStore(server.url)
        for _ in range(50):
            store.read("0-0.rec", 0, 64)
        assert server.server._server._server.requests_count == 50  # type: ignore[union-attr]
        assert server.server.metrics.connections == 1
        store.close()


def test_close_closes_a_connection_that_something_still_refers_to() -> None:
    server = RangeServer(bytes(64))
    store = HttpStore(server.url)
    assert store.read("file", 0, 64) == bytes(64)
    referred = store._connections().connection_from_url(server.url)
    connection = referred.pool.get_nowait()
    referred.pool.put(connection)
    assert connection.sock is not None
    store.close()
    assert connection.sock is None
    server.close()


def test_a_kept_connection_that_the_server_closed_is_replaced(live: Live) -> None:
    with RunningServer(live.path) as first:
        port = int(first.url.rpartition(":")[2])
        store = HttpStore(first.url, retry=Retry(attempts=1))
        store.read("0-0.rec", 0, 64)
    with RunningServer(live.path, port=port):
        assert len(store.read("0-0.rec", 0, 64)) == 64
        store.close()


@pytest.mark.filterwarnings("ignore:.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_its_own_connections(live: Live) -> None:
    with RunningServer(live.path) as server:
        store = HttpStore(server.url)
        data = store.read("0-0.rec", 0, 64)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if store.read("0-0.rec", 0, 64) == data else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert store.read("0-0.rec", 0, 64) == data
        store.close()


def test_a_store_behind_http_is_read_only(live: Live) -> None:
    store = HttpStore("http://127.0.0.1:1")
    for write in (lambda: store.put("a", b""), lambda: store.put_if_absent("a", b""), lambda: store.delete("a")):
        with pytest.raises(StoreError, match="read-only"):
            write()


def test_a_token_is_sent_and_a_wrong_one_is_named(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    with RunningServer(live.path, access=Access((TOKEN,))) as server:
        with pytest.raises(StoreError, match="a token is needed"):
            impatient(server.url).size("0-0.rec")
        with pytest.raises(StoreError, match="not valid") as raised:
            impatient(server.url, token="0123456789abcdef-other").size("0-0.rec")
        assert "0123456789abcdef" not in str(raised.value)
        assert impatient(server.url, token=TOKEN).size("0-0.rec") == 65536
        assert impatient(server.url, token_file=str(path)).size("0-0.rec") == 65536
        monkeypatch.setenv("MAINSTEM_SERVE_TOKEN", TOKEN)
        with pytest.raises(StoreError, match="MAINSTEM_SERVE_TOKEN_HOST does not name"):
            impatient(server.url).size("0-0.rec")
        monkeypatch.setenv("MAINSTEM_SERVE_TOKEN_HOST", "recorder-1:8480, 127.0.0.1")
        assert impatient(server.url).size("0-0.rec") == 65536


@pytest.mark.parametrize(
    ("names", "url", "is_sent"),
    [
        ("", "https://recorder-1", False),
        ("recorder-1", "https://recorder-1:8480", True),
        ("recorder-1:8480", "https://Recorder-1:8480/tides", True),
        ("recorder-1:8480", "https://recorder-1:8481", False),
        ("recorder-1:443", "https://recorder-1", True),
        ("recorder-1", "https://recorder-1.evil.example", False),
        ("recorder-1,recorder-2", "https://recorder-2", True),
        ("[::1]:8480", "https://[::1]:8480", True),
    ],
)
def test_the_token_of_the_environment_goes_to_the_hosts_that_it_is_for(
    monkeypatch: pytest.MonkeyPatch, names: str, url: str, is_sent: bool
) -> None:
    monkeypatch.setenv("MAINSTEM_SERVE_TOKEN", TOKEN)
    monkeypatch.setenv("MAINSTEM_SERVE_TOKEN_HOST", names)
    assert ("Authorization" in HttpStore(url)._headers) is is_sent


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        ("http://me:secret@h", {}, "token_file"),
        ("http://token@h", {}, "token_file"),
        ("http://h/?a=b", {}, "cannot have a query"),
        ("http://h:99999", {}, "from 0 to 65535"),
        ("http://", {}, "host"),
        ("http://h", {"tokens": "x"}, "no option"),
        ("http://h", {"timeout": "never"}, "timeout"),
        ("http://h", {"timeout": "0"}, "seconds"),
        ("http://h", {"token": TOKEN}, "unencrypted"),
        ("http://h", {"token_file": "/nowhere"}, "No such file"),
        ("https://h", {"ca": "/nowhere"}, "No such file"),
        ("https://h", {"token": "a\nb"}, "characters"),
    ],
)
def test_urls_and_options_that_are_not_usable_are_refused(url: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        HttpStore(url, options)
    assert "secret" not in str(raised.value)


def test_https_is_verified_by_an_authority_that_is_named(live: Live, tmp_path: Path) -> None:
    from mainstem.aqueduct import make_certificates
    from mainstem.serve.recording_server import tls_context

    files = make_certificates(tmp_path / "certs")
    context = tls_context(files.certificate, files.key)
    with RunningServer(live.path, tls=context, access=Access((TOKEN,))) as server:
        with pytest.raises(StoreError, match="set the option ca"):
            impatient(server.url, token=TOKEN).size("0-0.rec")
        store = impatient(server.url, token=TOKEN, ca=str(files.ca))
        assert store.read("0-0.rec", 0, 65536) == (live.path / "0-0.rec").read_bytes()
        store.close()


def test_a_plain_server_without_ranges_is_read_from_the_start_only(live: Live) -> None:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(live.path))

        def log_message(self, *_: object) -> None: ...

    with plain_server(Handler) as url:
        store = impatient(url)
        assert store.size("0-0.rec") == 65536
        assert store.read("0-0.rec", 0, 65536) == (live.path / "0-0.rec").read_bytes()
        with pytest.raises(StoreError, match="range requests"):
            store.read("0-0.rec", 64, 65536)
        with pytest.raises(StoreError, match="only `mainstem serve` lists files"):
            list(store.list())


class Faulty(BaseHTTPRequestHandler):
    """A server that fails as ``faults`` says, in order, and then responds."""

    protocol_version = "HTTP/1.1"
    faults: list[str]

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        body = b"x" * 100
        if fault.isdigit():
            self.send_response(int(fault))
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif fault == "deep":
            self.send_response(400)
            self.send_header("Content-Length", "60000")
            self.end_headers()
            self.wfile.write(b"[" * 60_000)
        elif fault == "reset":
            self.close_connection = True
        else:
            start = 1 if fault == "other range" else 0
            body = {"part": body[:50], "long": body * 2}.get(fault, body)
            self.send_response(200 if fault == "no length" else 206)
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/1000")
            if fault != "no length":
                self.send_header("Content-Length", str(1 << 40) if fault == "huge" else str(len(body)))
            self.end_headers()
            self.wfile.write(body[:50] if fault in ("short", "no length") else body)
            self.close_connection = fault in ("short", "huge", "no length")


@pytest.mark.parametrize("faults", [["503", "429"], ["reset", "reset"], ["short", "500"]])
def test_what_fails_for_a_moment_is_tried_again(faults: list[str]) -> None:
    handler = type("Handler", (Faulty,), {"faults": list(faults)})
    with plain_server(handler) as url:
        assert impatient(url).read("0-0.rec", 0, 100) == b"x" * 100
        assert handler.faults == []


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (["503"] * 3, "3 times"),
        (["other range"], "another range"),
        (["part"], "another range"),
        (["long"], "another range"),
        (["no length"], "does not say how long"),
        (["huge"], "were asked for"),
        (["400"], "HTTP 400"),
        (["deep"], "HTTP 400"),
        (["302"], "redirects"),
    ],
)
def test_what_does_not_pass_is_an_error_with_the_url(faults: list[str], sentence: str) -> None:
    with plain_server(type("Handler", (Faulty,), {"faults": list(faults)})) as url:
        with pytest.raises(StoreError, match=sentence) as raised:
            impatient(url).read("0-0.rec", 0, 100)
        assert raised.value.url == url


def listing(pages: Callable[[str], object]) -> type[BaseHTTPRequestHandler]:
    """Return a server that says it is `mainstem serve`, and sends what ``pages`` returns for the target of a request."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            body = json.dumps(pages(self.path)).encode()
            self.send_response(200)
            self.send_header("Mainstem-Serve", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.mark.parametrize(
    ("following", "sentence"),
    [
        (lambda after: "a", "does not advance"),
        (lambda after: "", "does not advance"),
        (lambda after: f"{after}a", "more than 100 entries"),
        (lambda after: 7, "does not advance"),
    ],
    ids=["the same page", "from the start", "endless", "another type"],
)
def test_a_listing_that_does_not_end_is_an_error(
    following: Callable[[str], object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_LISTED", 100)

    def page(target: str) -> object:
        after = target.rpartition("=")[2]
        return {"files": [[f"{after}a", 1, 2]], "next": following(after)}

    with plain_server(listing(page)) as url, pytest.raises(StoreError, match=sentence):
        list(impatient(url).list())

    def recordings(target: str) -> object:
        after = target.rpartition("=")[2]
        return {"recordings": [], "next": int(after) if after.isdigit() else 0}

    with plain_server(listing(recordings)) as url, pytest.raises(StoreError, match="does not advance"):
        list(impatient(url).rows("/v1/recordings?active=1", "recordings", 0))


@pytest.mark.parametrize(
    "page",
    [
        {},
        [],
        {"files": None, "next": None},
        {"files": [["0-0.rec"]], "next": None},
        {"files": [["0-0.rec", "x", 1]], "next": None},
        {"files": [["0-0.rec", -1, 1]], "next": None},
        {"files": [[7, 1, 1]], "next": None},
        {"files": [["0-0.rec", 1e400, 1]], "next": None},
        {"files": [[{"a": 1}, 1, 1]], "next": None},
        {"files": [["0-0.rec", 1, 1]]},
    ],
    ids=repr,
)
def test_a_listing_of_another_form_is_a_store_error(page: object) -> None:
    with plain_server(listing(lambda _: page)) as url, pytest.raises(StoreError):
        list(impatient(url).list())


def test_a_server_that_is_away_is_an_error_after_the_retries() -> None:
    with pytest.raises(StoreError, match="3 times"):
        impatient("http://127.0.0.1:1").size("0-0.rec")


class RangeServer:
    """A server of one file that truncates or stalls its responses to ranges as `cuts` says, then sends them in full."""

    def __init__(self, data: bytes, *cuts: int | None) -> None:
        self.data, self.cuts = data, list(cuts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._serve)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                self._start(self._respond, self._listening.accept()[0])

    def _respond(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rb") as requests, suppress(ConnectionError):
            while head := [*iter(lambda: requests.readline().strip(), b"")]:
                first, last = (int(part) for part in next(x for x in head if b"Range" in x).split(b"=")[1].split(b"-"))
                body = self.data[first : last + 1]
                lines = f"Content-Range: bytes {first}-{last}/{len(self.data)}\r\nContent-Length: {len(body)}\r\n\r\n"
                peer.sendall(b"HTTP/1.1 206 Partial Content\r\n" + lines.encode())
                cut = self.cuts.pop(0) if self.cuts else len(body)
                peer.sendall(body[: cut if cut is not None else len(body) // 2])
                if cut is None:
                    self._closing.wait()
                    return
                if cut < len(body):
                    return

    def close(self) -> None:
        """Close the server after its clients have closed, and check that every thread has ended."""
        self._closing.set()
        # Closing the socket alone would leave a thread blocked in accept().
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(STALL_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("length", [1, 70_000, 700_000, 5_000_000])
def test_a_range_of_any_length_is_read_into_its_buffer_despite_interruptions(length: int) -> None:
    data = random.Random(length).randbytes(length + 100)
    server = RangeServer(data, length // 3, length - 1, 0)
    store = HttpStore(server.url, retry=Retry(sleep=lambda _: None))
    buffer = bytearray(length)
    for start in (100, 0, 50):
        assert store.read_to(None, "file", start, memoryview(buffer)) == length
        assert buffer == data[start : start + length]
    store.close()
    server.close()


def test_a_server_that_stops_within_a_range_times_out() -> None:
    data = bytes(3_000_000)
    server = RangeServer(data, None, None)
    store = HttpStore(server.url, {"timeout": "0.3"}, retry=Retry(attempts=2, sleep=lambda _: None))
    with pytest.raises(StoreError, match="timed out"):
        store.read_to(None, "file", 0, memoryview(bytearray(len(data))))
    assert store.read_to(None, "file", 0, memoryview(bytearray(len(data)))) == len(data)
    store.close()
    server.close()
