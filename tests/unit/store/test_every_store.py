"""The behavior that all stores share, tested on each of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tests.support.object_stores import (
    S3RVER_KEYS,
    azurite_options,
    azurite_server,
    gcs_options,
    gcs_server,
    make_bucket,
    make_container,
    s3_options,
    s3_server,
    s3rver_server,
)

from mainstem.errors import ConfigurationError, StoreError
from mainstem.store import Store, StoredFile, open_store
from mainstem.store.fsspec import HdfsStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def s3rver() -> Iterator[str]:
    with s3rver_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def azurite() -> Iterator[str]:
    with azurite_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    with gcs_server() as endpoint:
        yield endpoint


@pytest.fixture(params=["local", "file-url", "hdfs", "fsspec-memory", "s3", "s3rver", "gcs", "azurite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    match request.param:
        case "local":
            opened = open_store(tmp_path / "deep" / "rec")
        case "file-url":
            opened = open_store((tmp_path / "rec").as_uri())
        case "hdfs":
            pytest.importorskip("pyarrow.fs")
            arrow = pytest.importorskip("fsspec.implementations.arrow")
            opened = HdfsStore("hdfs:", arrow.ArrowFSWrapper(RefusingToReplace()), str(tmp_path / "rec"))
        case "fsspec-memory":
            pytest.importorskip("fsspec")
            opened = open_store(f"memory://{uuid4().hex}/rec")
        case "s3rver":
            endpoint = request.getfixturevalue("s3rver")
            options = S3RVER_KEYS | {"endpoint_override": endpoint}
            opened = open_store(f"s3://{make_bucket(endpoint, S3RVER_KEYS)}/deep/rec", options)
        case "gcs":
            endpoint = request.getfixturevalue("gcs")
            opened = open_store(f"gs://{make_bucket(endpoint)}/deep/rec", gcs_options(endpoint))
        case "azurite":
            endpoint = request.getfixturevalue("azurite")
            opened = open_store(f"abfs://{make_container(endpoint)}/deep/rec", azurite_options(endpoint))
        case _:
            endpoint = request.getfixturevalue("s3")
            opened = open_store(f"s3://{make_bucket(endpoint)}/deep/rec", s3_options(endpoint))
    yield opened
    opened.close()


class RefusingToReplace:
    """pyarrow's local file system with HDFS's rename, which refuses to replace a file."""

    def __init__(self) -> None:
        from pyarrow.fs import LocalFileSystem

        self._files = LocalFileSystem()

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def move(self, source: str, target: str) -> None:
        os.link(source, target)
        os.unlink(source)


def test_stored_objects_are_read_by_range(store: Store) -> None:
    store.put("a/b.rec", b"0123456789")
    assert store.size("a/b.rec") == 10
    assert store.read("a/b.rec", 0, 10) == b"0123456789"
    assert store.read("a/b.rec", 3, 5) == b"34"
    assert store.read("a/b.rec", 8, 20) == b"89"
    assert store.read("a/b.rec", 10, 20) == b""
    assert store.read("a/b.rec", 30, 40) == b""


def test_a_replaced_file_is_read_again(store: Store) -> None:
    store.put("a", b"0123456789")
    assert store.read("a", 0, 4) == b"0123"
    assert store.read("a", 4, 8) == b"4567"
    store.put("a", b"abcdefghijkl")
    assert store.size("a") == 12
    assert store.read("a", 0, 4) == b"abcd"
    assert store.read("a", 8, 20) == b"ijkl"


def test_files_are_listed_with_their_sizes(store: Store) -> None:
    for name, data in {"a/1": b"x", "a/2": b"yy", "ab": b"zzz", "b/c/d": b""}.items():
        store.put(name, data)

    def listed(prefix: str = "", **options: bool) -> list[tuple[str, int]]:
        return sorted((file.name, file.size) for file in store.list(prefix, **options))

    assert listed() == [("a/1", 1), ("a/2", 2), ("ab", 3), ("b/c/d", 0)]
    assert listed("a") == [("a/1", 1), ("a/2", 2), ("ab", 3)]
    assert listed("a/") == [("a/1", 1), ("a/2", 2)]
    assert listed("a/2") == [("a/2", 2)]
    assert listed("b/c/") == [("b/c/d", 0)]
    assert listed("none/") == []
    assert listed(recursive=False) == [("ab", 3)]
    assert listed("b/c/", recursive=False) == [("b/c/d", 0)]
    # s3rver lists a directory only if it directly contains a file.
    store.put("b/e", b"")
    assert sorted(store.directories()) == ["a", "b"]
    assert sorted(store.directories("b")) == ["b/c"]
    assert sorted(store.directories("b/")) == ["b/c"]
    assert list(store.directories("none")) == []


def test_an_empty_store_has_no_files(store: Store) -> None:
    assert list(store.list()) == []
    assert list(store.directories()) == []


def test_a_missing_file_is_not_found(store: Store) -> None:
    store.put("there", b"1")
    for action in (lambda: store.size("none"), lambda: store.read("none", 0, 1), lambda: store.size("no/such")):
        with pytest.raises(FileNotFoundError):
            action()
    store.put("directory/file", b"1")
    with pytest.raises(FileNotFoundError):
        store.size("directory")
    store.delete("none")
    store.delete("there")
    with pytest.raises(FileNotFoundError):
        store.read("there", 0, 1)


def test_a_server_that_ignores_conditions_is_an_error(s3rver: str) -> None:
    url = f"s3://{make_bucket(s3rver, S3RVER_KEYS)}/rec"
    with closing(open_store(url, S3RVER_KEYS | {"endpoint_override": s3rver})) as store:
        for name in ("m/1", "m/2"):
            with pytest.raises(
                ConfigurationError, match=r"cannot write m/\d: its server ignores the condition .* \(If-None-Match\)"
            ):
                store.put_if_absent(name, b"first")
        assert [file.name for file in store.list("m/")] == ["m/1"]


def test_only_the_first_writer_puts_an_absent_file(store: Store, request: pytest.FixtureRequest) -> None:
    if "s3rver" in request.node.name:
        pytest.skip("s3rver ignores If-None-Match")
    assert store.put_if_absent("m/1", b"first")
    assert not store.put_if_absent("m/1", b"second")
    assert store.read("m/1", 0, 10) == b"first"
    assert [file.name for file in store.list("m/")] == ["m/1"]


def test_of_many_writers_at_once_one_puts(store: Store, request: pytest.FixtureRequest) -> None:
    if "fsspec-memory" in request.node.name:
        pytest.skip("fsspec's memory checks and writes in two steps")
    if "s3rver" in request.node.name:
        pytest.skip("s3rver ignores If-None-Match")
    for number in range(5):
        with ThreadPoolExecutor(8) as pool:
            name = f"m/{number}"
            done = list(pool.map(lambda i, name=name: store.put_if_absent(name, b"%d" % i * 1000), range(8)))
        assert done.count(True) == 1
        assert store.read(name, 0, 1 << 20) == b"%d" % done.index(True) * 1000


def test_a_local_file_is_put_whole(store: Store, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    (tmp_path / "source").write_bytes(data)
    store.put("big", tmp_path / "source")
    assert store.read("big", 0, len(data)) == data
    assert store.read("big", 5_000_000, 5_000_100) == data[5_000_000:5_000_100]


@pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/../../b"])
def test_a_name_stays_below_the_store(store: Store, name: str) -> None:
    for action in (
        lambda: store.read(name, 0, 1),
        lambda: store.put(name, b""),
        lambda: store.put_if_absent(name, b""),
    ):
        with pytest.raises(StoreError, match="not a file name"):
            action()


def test_names_with_spaces_and_signs_are_names(store: Store) -> None:
    store.put("a b/ü+=&.rec", b"1")
    assert [file.name for file in store.list()] == ["a b/ü+=&.rec"]
    assert store.read("a b/ü+=&.rec", 0, 1) == b"1"


def test_modified_is_a_time_or_unknown(store: Store) -> None:
    store.put("a", b"1")
    (file,) = store.list()
    assert isinstance(file, StoredFile)
    assert file.modified_ns is None or file.modified_ns > 1_600_000_000 * 10**9
