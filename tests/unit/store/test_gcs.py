"""Google Cloud Storage against an emulator: reading. It has neither the way that objects are written by, nor conditions."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.object_stores import gcs_options, gcs_server, make_gcs_bucket

from mainstem.store import open_store
from mainstem.store.options import gcs_options as typed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gcs() -> Iterator[str]:
    with gcs_server() as endpoint:
        yield endpoint


def test_objects_of_a_bucket_are_listed_and_read(gcs: str) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    bucket, options = make_gcs_bucket(gcs), gcs_options(gcs)
    writer = fs.GcsFileSystem(**typed("gs:", options))
    for name, data in {"a/1": b"0123456789", "b/c/d": b"x", "ab": b"zz"}.items():
        with writer.open_output_stream(f"{bucket}/deep/rec/{name}") as output:
            output.write(data)
    with closing(open_store(f"gs://{bucket}/deep/rec", options)) as store:
        assert sorted((file.name, file.size) for file in store.list()) == [("a/1", 10), ("ab", 2), ("b/c/d", 1)]
        assert [file.name for file in store.list("a/")] == ["a/1"]
        assert sorted(store.directories()) == ["a", "b"]
        assert sorted(store.directories("b/")) == ["b/c"]
        assert list(store.directories("none")) == []
        assert store.size("a/1") == 10
        assert store.read("a/1", 0, 4) == b"0123"
        assert store.read("a/1", 3, 5) == b"34"
        assert store.read("a/1", 8, 20) == b"89"
        with pytest.raises(FileNotFoundError):
            store.read("none", 0, 1)
        with pytest.raises(FileNotFoundError):
            store.size("none")
        assert list(store.list("none/")) == []
