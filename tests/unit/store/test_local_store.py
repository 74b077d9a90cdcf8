from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.errors import StoreError
from mainstem.store import open_store
from mainstem.store.local import NEW_SUFFIX, LocalStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "a\0b"])
def test_a_name_stays_below_the_store(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path / "store")
    with pytest.raises(StoreError, match="not a file name"):
        store.read(name, 0, 1)
    with pytest.raises(StoreError, match="not a file name"):
        store.put(name, b"x")


def test_what_a_killed_writer_leaves_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / f".a.0{NEW_SUFFIX}").write_bytes(b"half")
    assert list(LocalStore(tmp_path).list()) == []


def test_a_file_url_is_the_directory_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x").write_bytes(b"1234")
    store = open_store((tmp_path / "a b").as_uri())
    assert store.read("x", 1, 3) == b"23"
    assert store.local_path("x") == tmp_path / "a b" / "x"
