"""The file interface: the same behavior on a file system and in memory."""

from __future__ import annotations

import os
import stat

import pytest

from mainstem.aeron.files import MappedFiles, MemoryFiles
from mainstem.errors import StorageSpaceError


@pytest.fixture(params=["mapped", "memory"])
def files(request):
    return MappedFiles() if request.param == "mapped" else MemoryFiles()


@pytest.fixture
def directory(files, tmp_path):
    path = f"{tmp_path}/aeron/publications"
    files.make_directory(path)
    files.make_directory(path)
    return path


@pytest.mark.parametrize("sparse_length", [8192, 4096, 0])
def test_a_created_file_is_zeroed_and_shared_by_all_who_map_it(files, directory, sparse_length):
    path = f"{directory}/1.logbuffer"
    first = files.create(path, 8192, sparse_length=sparse_length)
    assert first.get_bytes(0, 8192) == bytes(8192)
    second = files.map(path)
    first.put_i64_release(128, 77)
    assert second.get_i64_acquire(128) == 77
    assert files.size(path) == 8192
    assert files.exists(path)
    files.unmap(first)
    assert second.get_i64(128) == 77
    files.unmap(second)
    with pytest.raises(IndexError):
        second.get_i64(128)
    assert files.read_bytes(path)[128] == 77


def test_a_file_is_created_once(files, directory):
    files.unmap(files.create(f"{directory}/1", 4096))
    with pytest.raises(FileExistsError):
        files.create(f"{directory}/1", 4096)


def test_a_deleted_file_stays_mapped(files, directory):
    path = f"{directory}/1"
    buffer = files.create(path, 4096)
    files.delete(path)
    files.delete(path)
    assert not files.exists(path)
    buffer.put_i32(0, 5)
    assert buffer.get_i32(0) == 5
    files.unmap(buffer)


def test_a_missing_file_is_reported_as_missing(files, directory):
    with pytest.raises(FileNotFoundError):
        files.map(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        files.size(f"{directory}/none")


def test_a_directory_is_deleted_with_its_contents(files, directory):
    files.unmap(files.create(f"{directory}/1", 4096))
    parent = os.path.dirname(directory)
    files.delete_directory(parent)
    files.delete_directory(parent)
    assert not files.exists(f"{directory}/1")
    assert not files.exists(directory)
    assert not files.exists(parent)


def test_plain_files_are_written_and_replaced(files, directory):
    files.write_bytes(f"{directory}/error.log", b"first and longer")
    files.write_bytes(f"{directory}/error.log", b"second")
    assert files.read_bytes(f"{directory}/error.log") == b"second"


def test_free_space_and_page_size_are_known(files, directory):
    assert files.free_space(directory) > 0
    assert files.page_size in (4096, 8192, 16384, 65536)


def test_unmapping_while_a_view_is_out_keeps_the_view_alive(files, directory):
    buffer = files.create(f"{directory}/1", 4096)
    view = buffer.view(0, 16)
    view[0] = 9
    files.unmap(buffer)
    assert view[0] == 9


def test_mapped_files_and_directories_have_the_modes_of_the_reference_less_the_umask(tmp_path):
    files = MappedFiles()
    before = os.umask(0o027)
    try:
        files.make_directory(f"{tmp_path}/d")
        files.unmap(files.create(f"{tmp_path}/d/f", 4096))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(f"{tmp_path}/d").st_mode) == 0o750
    assert stat.S_IMODE(os.stat(f"{tmp_path}/d/f").st_mode) == 0o640


def test_a_sparse_file_takes_no_space_before_it_is_written_and_a_full_one_does(tmp_path):
    files = MappedFiles()
    files.unmap(files.create(f"{tmp_path}/sparse", 1 << 20, sparse_length=1 << 20))
    files.unmap(files.create(f"{tmp_path}/part", 1 << 20, sparse_length=1 << 19))
    files.unmap(files.create(f"{tmp_path}/full", 1 << 20))
    assert files.allocated_length(f"{tmp_path}/sparse") < 1 << 18
    assert 1 << 19 <= files.allocated_length(f"{tmp_path}/part") < 3 << 18
    assert files.allocated_length(f"{tmp_path}/full") >= 1 << 20


def test_too_little_space_is_reported_with_needed_and_free_bytes():
    files = MemoryFiles(space=10_000)
    files.create("/d/1", 8000)
    with pytest.raises(StorageSpaceError, match="needs 4096 bytes, and 2000 are free") as caught:
        files.create("/d/2", 4096)
    assert (caught.value.needed, caught.value.available) == (4096, 2000)


def test_too_little_room_on_a_real_file_system_leaves_no_file(tmp_path):
    files = MappedFiles()
    with pytest.raises(StorageSpaceError):
        files.create(f"{tmp_path}/huge", 1 << 60)
    assert not files.exists(f"{tmp_path}/huge")
