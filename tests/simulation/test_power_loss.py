"""The simulated disk that loses power, and the data committed on it."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from mainstem.recording.catalog import RecordingDescriptor
from mainstem.recording.segments import SegmentWriter
from mainstem.sim.disk import Crash, Device, FaultyDisk
from mainstem.sim.scenarios.maintenance import MaintenanceRun
from mainstem.sim.world import World
from mainstem.spark.formats.data_files import NewFile
from mainstem.store.local import LocalStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.simulation

PAGE = 4096


def outcomes(tmp_path: Path, work, *, seeds: int = 60) -> set[tuple[tuple[str, bytes], ...]]:
    """Return what a loss of power leaves of the files that ``work`` writes, over many random seeds."""
    left = set()
    for seed in range(seeds):
        root = tmp_path / str(seed)
        root.mkdir()
        device = Device(root, random.Random(seed))
        disk = FaultyDisk(device, is_good=True)
        work(disk, root)
        disk.lose_power()
        left.add(
            tuple(
                (str(path.relative_to(root)), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
            )
        )
    return left


def written(disk: FaultyDisk, path: Path, data: bytes, *, sync: bool) -> None:
    fd = disk.open(path)
    disk.write(fd, data, 0)
    if sync:
        disk.sync(fd)
    disk.close(fd)


def test_each_page_and_each_name_is_lost_by_itself(tmp_path: Path) -> None:
    first, second = b"a" * PAGE, b"b" * PAGE

    def work(disk: FaultyDisk, root: Path) -> None:
        written(disk, root / "new", first + second, sync=False)
        disk.rename(root / "new", root / "old")

    left = outcomes(tmp_path, work, seeds=300)
    # No file, or the old name with no page, either page or both. The new name can survive without the file's data.
    zeros = bytes(PAGE)
    contents = {b"", *(a + b for a in (zeros, first) for b in (zeros, second))}
    assert left >= {(), *((("old", data),) for data in contents), *((("new", data),) for data in (b"", first + second))}


def test_flushed_files_survive_but_names_need_a_directory_sync(tmp_path: Path) -> None:
    def without(disk: FaultyDisk, root: Path) -> None:
        written(disk, root / "file", b"x" * 5000, sync=True)

    def with_directory(disk: FaultyDisk, root: Path) -> None:
        without(disk, root)
        disk.sync_directory(root)
        fd = disk.open(root / "file")
        disk.write(fd, b"y", 0)
        disk.close(fd)

    whole = b"x" * 5000
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    assert outcomes(tmp_path / "1", without) == {(), (("file", whole),)}
    assert outcomes(tmp_path / "2", with_directory) == {(("file", whole),), (("file", b"y" + whole[1:]),)}


def test_a_deleted_file_may_come_back(tmp_path: Path) -> None:
    def work(disk: FaultyDisk, root: Path) -> None:
        written(disk, root / "file", b"x", sync=True)
        disk.sync_directory(root)
        disk.delete(root / "file")

    assert outcomes(tmp_path, work) == {(), (("file", b"x"),)}


def test_committed_tables_have_their_files(tmp_path: Path) -> None:
    losses = 0
    for seed in range(60):
        root, rng = tmp_path / str(seed), random.Random(seed)
        root.mkdir()
        device = Device(root, rng)
        committed: dict[str, dict[str, str]] = {}
        for life in range(4):
            disk = FaultyDisk(device, crash_at=rng.randrange(1, 200), is_good=True)
            with suppress(Crash):
                table = LocalStore(root / "lake" / "tides", disk=disk)
                for commit in range(5):
                    files = {}
                    for part in range(rng.randrange(1, 3)):
                        new = NewFile(table, f"day={part}/{life}-{commit}.parquet", disk)
                        new.sink.write(data := rng.randbytes(rng.randrange(10_000)))
                        new.close()
                        files[new.name] = data.hex()
                    name = f"_log/{life}-{commit}.json"
                    assert table.put_if_absent(name, json.dumps(files).encode())
                    committed[name] = files
            disk.kill()
            if rng.random() < 0.7:
                losses += 1
                device.lose_power()
            there = LocalStore(root / "lake" / "tides")
            names = {file.name for file in there.list("_log/")}
            assert committed.keys() <= names
            for name in names:
                for file, data in json.loads(there.read(name, 0, 1 << 20)).items():
                    assert there.read(file, 0, 1 << 20).hex() == data
    assert losses > 50


def test_data_cut_before_an_extension_does_not_reappear(tmp_path: Path) -> None:
    descriptor = RecordingDescriptor(
        recording_id=0, start_timestamp=0, term_buffer_length=1 << 16, segment_file_length=1 << 16
    )
    old, new = memoryview(b"o" * PAGE), memoryview(b"n" * PAGE)

    def work(disk: FaultyDisk, root: Path) -> None:
        first = SegmentWriter(root, descriptor, 0, durable=True, disk=disk)
        for _ in range(20):
            first.write(old)
        first.close()
        # This writer is not durable, but the cut it makes is.
        second = SegmentWriter(root, descriptor, PAGE, later=[0, 1 << 16], disk=disk)
        second.write(new)
        second.close()

    (left,) = {
        tuple((name, data.replace(new, bytes(PAGE))) for name, data in files) for files in outcomes(tmp_path, work)
    }
    assert left == (("0-0.rec", bytes(old).ljust(1 << 16, b"\0")),)


@pytest.mark.parametrize("is_killed", [False, True])
def test_objects_survive_in_directories_created_by_a_killed_process(tmp_path: Path, is_killed: bool) -> None:
    def work(disk: FaultyDisk, root: Path) -> None:
        if is_killed:
            disk.make_directory(root / "lake" / "a" / "b")
        LocalStore(root / "lake", disk=disk).put("a/b/c", b"tides")

    assert outcomes(tmp_path, work) == {(("lake/a/b/c", b"tides"),)}


def test_files_with_two_names_stay_one_file(tmp_path: Path) -> None:
    device = Device(tmp_path, random.Random(1))
    disk = FaultyDisk(device, is_good=True)
    written(disk, tmp_path / "one", b"x", sync=True)
    disk.link(tmp_path / "one", tmp_path / "other")
    disk.sync_directory(tmp_path)
    disk.lose_power()
    assert (tmp_path / "one").samefile(tmp_path / "other")
    written(disk, tmp_path / "one", b"y", sync=True)
    disk.delete(tmp_path / "one")
    disk.sync_directory(tmp_path)
    disk.lose_power()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"other": b"y"}


def test_requests_that_change_files_lose_no_message_at_any_step(tmp_path: Path) -> None:
    requests = losses = 0
    for seed in range(30):
        run = MaintenanceRun(World(seed), tmp_path / str(seed))
        run.play()
        requests, losses = requests + run.requests, losses + run.losses
    assert min(requests, losses) > 30
