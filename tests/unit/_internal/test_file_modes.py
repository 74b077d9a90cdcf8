"""Who can access the files that a driver and a recorder create, under each umask."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mainstem._internal import file_modes
from mainstem.aeron.driver.directory_lock import claim_directory
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.aeron.files import MappedFiles
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import Recorder
from mainstem.recording.shipping.local_recording import identity_of
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAM = {
    "stream_id": 1001,
    "initial_term_id": 0,
    "join_position": 0,
    "term_buffer_length": 65536,
    "mtu_length": 1408,
    "source_identity": "",
    "channel": "aeron:ipc",
}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*")} | {".": directory}
    return {name: stat.S_IMODE(path.stat().st_mode) for name, path in found.items()}


def check(directory: Path, directory_mode: int) -> None:
    """Check that each directory below has ``directory_mode``, and each file the same mode without execute permission."""
    found = modes(directory)
    assert len(found) > 2
    for name, mode in found.items():
        assert mode == (directory_mode if (directory / name).is_dir() else directory_mode & 0o666), name


@pytest.mark.parametrize(("mask", "expected"), [(0o000, 0o777), (0o022, 0o755), (0o027, 0o750), (0o077, 0o700)])
def test_the_umask_decides_the_mode_of_a_drivers_directory(mask: int, expected: int, tmp_path: Path) -> None:
    directory, files = tmp_path / "driver", MappedFiles()
    with umask(mask):
        claim(files, directory)
        files.unmap(files.create(f"{directory}/cnc.dat", 4096))
        files.unmap(files.create(f"{directory}/images/1.logbuffer", 4096))
    check(directory, expected)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_an_explicit_mode_overrides_the_umask(mask: int, tmp_path: Path) -> None:
    directory, files = tmp_path / "driver", MappedFiles()
    with umask(mask):
        claim(files, directory, mode=0o770)
        files.unmap(files.create(f"{directory}/cnc.dat", 4096))
        files.unmap(files.create(f"{directory}/publications/1.logbuffer", 4096))
        files.write_bytes(f"{directory}/event.log", b"")
    check(directory, 0o770)


def claim(files: MappedFiles, directory: Path, *, mode: int | None = None, group: str = "") -> None:
    claim_directory(
        files, str(directory), now_ms=0, driver_timeout_ms=10, delete_on_start=True, warn_if_exists=False, mode=mode,
        group=group,
    )  # fmt: skip


def record(directory: Path, mode: int | None = None, group: str = "", session_id: int = 7) -> None:
    with Recorder(directory, mode=mode, group=group) as recorder:
        recorder.start(session_id=session_id, **STREAM)  # type: ignore[arg-type]
    identity_of(directory)


@pytest.mark.parametrize(("mask", "expected"), [(0o000, 0o750), (0o022, 0o750), (0o077, 0o700)])
def test_recordings_are_for_the_owner_and_the_group_less_the_umask(mask: int, expected: int, tmp_path: Path) -> None:
    with umask(mask):
        record(tmp_path / "tides")
    check(tmp_path / "tides", expected)


def test_files_follow_their_directory_when_it_is_changed(tmp_path: Path) -> None:
    directory = tmp_path / "tides"
    record(directory)
    before = modes(directory)
    directory.chmod(0o775)
    record(directory, session_id=8)
    assert {name: mode for name, mode in modes(directory).items() if name in before} == before | {".": 0o775}
    added = modes(directory).keys() - before.keys()
    assert added
    assert {modes(directory)[name] for name in added} == {0o664}


def test_files_in_a_directory_that_all_share_are_not_for_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    os.close(file_modes.create_file(tmp_path / "file", os.O_RDWR))
    assert modes(tmp_path)["file"] == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
def test_files_have_the_group_of_their_directory(tmp_path: Path) -> None:
    for make in (record, lambda directory, group: claim(MappedFiles(), directory, group=group)):
        directory = tmp_path / make.__name__
        make(directory, group="54321")
        assert {path.stat().st_gid for path in [directory, *directory.rglob("*")]} == {54321}


def test_shipped_files_are_as_private_as_recordings(tmp_path: Path) -> None:
    with umask(0):
        LocalStore(tmp_path / "bucket").put("x/0.rec", b"tides")
    check(tmp_path / "bucket", 0o750)


@pytest.mark.parametrize("mode", ["75", "0800", "rwx", "01770", "-1"])
def test_an_invalid_mode_is_rejected(mode: str) -> None:
    with pytest.raises(ConfigurationError, match="octal from 0700 to 0777"):
        DriverSettings.load(dir_mode=mode)
    with pytest.raises(ConfigurationError, match="--mode must be octal from 0700 to 0777"):
        file_modes.parse_mode(mode, name="--mode")


def test_an_unknown_group_is_rejected_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no group 'nobodies-group'"):
        Recorder(tmp_path / "tides", group="nobodies-group")
    assert not (tmp_path / "tides").exists()


def test_a_private_directory_is_created_and_closed_to_others(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with umask(0):
        file_modes.private_directory(own)
    assert modes(own)["."] == 0o700
    own.chmod(0o777)
    file_modes.private_directory(own)
    assert modes(own)["."] == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
def test_anything_else_at_the_path_of_a_private_directory_is_rejected(kind: str, tmp_path: Path) -> None:
    own, target = tmp_path / "own", tmp_path / "target"
    target.mkdir()
    if kind == "link":
        own.symlink_to(target)
    else:
        own.touch()
    with pytest.raises(ConfigurationError, match="not a directory of this user"):
        file_modes.private_directory(own)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_private_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, 12345, -1)
    with pytest.raises(ConfigurationError, match="uid 12345"):
        file_modes.private_directory(own)


def test_a_private_file_takes_the_place_of_one_that_others_may_read(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "key.pem", tmp_path / "elsewhere"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with umask(0):
        file_modes.write_private(path, b"new")
    assert (path.read_bytes(), modes(tmp_path)["key.pem"]) == (b"new", 0o600)
    elsewhere.write_bytes(b"not ours")
    path.unlink()
    path.symlink_to(elsewhere)
    file_modes.write_private(path, b"new")
    assert (path.read_bytes(), path.is_symlink(), elsewhere.read_bytes()) == (b"new", False, b"not ours")


def test_a_link_in_place_of_a_created_file_is_refused(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "archive.catalog", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    for _ in range(2):  # a dangling link, then a link to a file
        with pytest.raises(OSError, match="symbolic links"):
            file_modes.create_file(path, os.O_RDWR | os.O_TRUNC)
        elsewhere.write_bytes(b"not ours")
    assert elsewhere.read_bytes() == b"not ours"


def test_a_recorder_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"not ours" * 1000)
    directory = tmp_path / "recordings"
    directory.mkdir()
    for name in ("archive.catalog", "archive.catalog.new", "recorder.lock", "mainstem-archive.json"):
        (directory / name).symlink_to(victim)
    with pytest.raises((OSError, RecordingError)):
        Recorder(directory)
    assert victim.read_bytes() == b"not ours" * 1000
