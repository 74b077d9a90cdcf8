"""Files that are replaced, cut short or deleted while they are read: a reader gets one version, or an error that names the file."""

from __future__ import annotations

import http.server
import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.plain_server import plain_server

from mainstem.errors import StoreError
from mainstem.store.base import OneVersion, read_all
from mainstem.store.file_reader import StoredFileReader
from mainstem.store.fsspec import FsspecStore
from mainstem.store.http import HttpStore
from mainstem.store.local import LocalStore
from mainstem.store.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainstem.store.base import Store

LENGTH = 600
names = itertools.count()


class WebServer(http.server.BaseHTTPRequestHandler):
    """A server with ranges, and what it is told to have as validators: entity tags that it compares, or only times."""

    files: dict[str, tuple[bytes, int]]
    has_tags = True

    def do_HEAD(self) -> None:
        self.do_GET(is_head=True)

    def do_GET(self, *, is_head: bool = False) -> None:
        data, number = self.files.get(self.path.lstrip("/"), (None, 0))
        tag = f'"{number}"'
        if data is None:
            return self.answer(404, b"", {})
        headers = {"ETag": tag} if self.has_tags else {"Last-Modified": f"number {number}"}
        if self.headers.get("If-Match") not in (None, tag):
            return self.answer(412, b"", headers)
        if range_ := self.headers.get("Range"):
            start, last = map(int, range_.removeprefix("bytes=").split("-"))
            if start >= len(data):
                return self.answer(416, b"", headers | {"Content-Range": f"bytes */{len(data)}"})
            part = data[start : last + 1]
            span = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"}
            return self.answer(206, part, headers | span)
        return self.answer(200, data, headers, is_head=is_head)

    def answer(self, status: int, body: bytes, headers: dict[str, str], *, is_head: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not is_head:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Writable:
    """A store, and the way in which another program writes it."""

    def __init__(self, store: Store, put: Callable[[str, bytes], None], delete: Callable[[str], None]) -> None:
        self.store, self.put, self.delete = store, put, delete


def web(*, has_tags: bool) -> Iterator[Writable]:
    handler = type("Handler", (WebServer,), {"files": {}, "has_tags": has_tags})
    count = itertools.count(1)
    with plain_server(handler) as url:
        put = lambda name, data: handler.files.__setitem__(name, (data, next(count)))  # noqa: E731
        yield Writable(HttpStore(url), put, lambda name: handler.files.pop(name))


@pytest.fixture(scope="module", params=["local", "objects", "fsspec", "HTTP with tags", "HTTP with times"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writable]:
    directory: Path = tmp_path_factory.mktemp("files")
    store: Any
    if request.param.startswith("HTTP"):
        yield from web(has_tags=request.param == "HTTP with tags")
        return
    if request.param == "objects":
        from obstore.store import MemoryStore

        client = MemoryStore()
        store = ObjectStore("memory://files", "", lambda _retries: client)
    elif request.param == "fsspec":
        from fsspec.implementations.local import LocalFileSystem

        store = FsspecStore(f"file://{directory}", LocalFileSystem(), str(directory))
    else:
        store = LocalStore(directory)
    if request.param == "objects":
        yield Writable(store, store.put, store.delete)
    else:
        count = itertools.count(1)

        def put(name: str, data: bytes) -> None:
            """Overwrite a file in place, at a time of its own: two writes can be within the resolution of the clock."""
            (directory / name).write_bytes(data)
            os.utime(directory / name, ns=(0, next(count) * 10**9))

        yield Writable(store, put, store.delete)


def content(version: int, length: int = LENGTH) -> bytes:
    return bytes([65 + version]) * length


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(1, LENGTH - 1), min_size=1, max_size=6, unique=True).map(sorted),
    changes=st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from(["replace", "cut", "extend", "delete"])), min_size=1, max_size=2
    ),
)
@example(cuts=[400], changes=[(1, "cut")])
def test_ranges_are_of_one_version_or_raise(files: Writable, cuts: list[int], changes: list[tuple[int, str]]) -> None:
    name = f"file{next(names)}"
    files.put(name, content(0))
    file, parts = OneVersion(files.store, name), []
    version = 0
    for step, (start, end) in enumerate(itertools.pairwise([0, *cuts, LENGTH])):
        for at, change in changes:
            if at == step and change == "delete":
                files.delete(name) if version >= 0 else None
                version = -1
            elif at == step and version >= 0:
                version += 1
                files.put(name, content(version, {"replace": LENGTH, "cut": LENGTH // 2, "extend": 2 * LENGTH}[change]))
        try:
            parts.append(file.read(start, end))
        except (FileNotFoundError, StoreError):
            assert version != 0, "an error without a change"
            return
    read = b"".join(parts)
    assert len(set(read)) <= 1
    # Fewer bytes can only be those of a file that was shorter from the first range on.
    assert len(read) in (LENGTH, LENGTH // 2)


def test_the_error_names_the_file_and_says_what_to_do(files: Writable) -> None:
    files.put("tide", content(0))
    file = OneVersion(files.store, "tide")
    file.read(0, 10)
    files.put("tide", content(1))
    with pytest.raises(StoreError, match="tide was replaced or changed while it was read; read it again"):
        file.read(10, 20)
    file.restart()
    assert file.read(10, 20) == content(1, 10)


def test_a_stored_file_is_read_in_one_version(files: Writable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.store.file_reader.FIRST_BYTES", 100)
    files.put("capture", content(0))
    with StoredFileReader(files.store, "capture") as reader:
        assert reader.read(50) == content(0, 50)
        files.put("capture", content(1))
        with pytest.raises(StoreError, match="capture was replaced"):
            reader.read(LENGTH)


@pytest.mark.parametrize("length", [0, LENGTH // 2])
def test_a_stored_file_that_is_truncated_has_not_ended_there(files: Writable, length: int) -> None:
    files.put("capture", content(0))
    with StoredFileReader(files.store, "capture") as reader:
        files.put("capture", content(1, length))
        reader.seek(length)
        with pytest.raises(StoreError, match="capture was replaced"):
            reader.read(LENGTH)


@pytest.mark.parametrize("change", [LENGTH // 2, 2 * LENGTH])
def test_a_whole_file_is_whole_even_if_its_length_changes(
    files: Writable, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    files.put("catalog", content(0))
    size = files.store.size

    def changes_after(name: str) -> int:
        monkeypatch.undo()
        before = size(name)
        files.put(name, content(1, change))
        return before

    monkeypatch.setattr(files.store, "size", changes_after)
    assert read_all(files.store, "catalog", limit=10 * LENGTH) == content(1, change)


def test_a_whole_file_that_never_stays_the_same_is_an_error(files: Writable, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put("catalog", content(0))
    monkeypatch.setattr(files.store, "size", lambda _: LENGTH - 1)
    with pytest.raises(StoreError, match="catalog was replaced"):
        read_all(files.store, "catalog", limit=10 * LENGTH)
