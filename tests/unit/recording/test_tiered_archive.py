"""One archive in two tiers: no row is lost or duplicated while segments move and while one of the tiers is unreachable."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.tiered_archive import SEGMENT, Tiers

from mainstem.errors import ConfigurationError, RecordingError, StoreError
from mainstem.recording import messages
from mainstem.recording.archive import IDENTITY_FILE, local_archive
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.tiered_archive import TieredArchive

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Tiers]:
    both = Tiers(tmp_path)
    both.add(1000)
    both.ship(purge=True)
    both.add(1000)
    yield both
    both.close()


def numbers(archive: TieredArchive) -> list[int]:
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        return [int(payload[:6]) for _, payload in messages(reader, 0, reader.end_position())]


def test_every_message_is_read_once_from_the_tier_that_has_it(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    assert tiers.tail.segments(tiers.tail.recordings()[0]).keys().isdisjoint({0, SEGMENT})
    assert numbers(archive) == list(range(2000))
    (descriptor,) = archive.recordings()
    bases = list(archive.segments(descriptor))
    assert bases == sorted(set(bases)) == list(range(0, tiers.writer.position, SEGMENT))
    assert archive.recorded_positions([descriptor]) == [tiers.writer.position]


def test_the_length_of_a_segment_is_asked_once_of_each_tier(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    lengths = archive.segments(archive.recordings()[0])
    last = max(lengths)
    asked: list[Path] = []
    stat = Path.stat

    def noted(path: Path, **options: bool) -> os.stat_result:
        asked.append(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", noted)
    assert lengths[last] == SEGMENT
    assert len(asked) == len(set(asked)) > 0


def test_segments_may_move_while_they_are_read(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    seen = []
    with RecordingReader(archive, descriptor) as reader:
        for _, payload in messages(reader, 0, reader.end_position()):
            seen.append(int(payload[:6]))
            if len(seen) == 1100:
                tiers.ship(purge=True)
                archive.refresh()
    assert seen == list(range(2000))


def test_segments_that_have_moved_are_read_by_a_reader_that_planned_before(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    archive.shipped_end(descriptor)
    tiers.ship(purge=True)
    with RecordingReader(archive, descriptor) as reader:
        assert [int(payload[:6]) for _, payload in messages(reader, 0, reader.end_position())] == list(range(2000))


def test_shipped_ranges_are_read_while_the_tail_is_away(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    end = archive.shipped_end(descriptor)
    tiers.tail.is_away = True
    fresh = TieredArchive(tiers.shipped, tiers.tail)
    for each in (archive, fresh):
        with RecordingReader(each, descriptor) as reader:
            assert reader.walk(0, end).messages > 700
            assert reader.recorded_time_ns(end - 4096) is not None
            with pytest.raises(StoreError, match="refused"):
                reader.walk(end, tiers.writer.position)


def test_a_reader_that_saw_both_continues_without_the_tail(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        end = reader.end_position()
        tiers.tail.is_away = True
        archive.refresh()
        assert archive.recordings() == [descriptor]
        assert next(iter(archive.segments(descriptor))) == 0
        assert reader.end_position() == end, "no position goes back"
        tiers.add(1000)
        tiers.ship()
        archive.refresh()
        assert reader.end_position() >= tiers.writer.position // SEGMENT * SEGMENT > end
        tiers.tail.is_away = False
        assert reader.end_position() == tiers.writer.position


def test_a_reader_that_saw_both_continues_without_the_shipped_part(tiers: Tiers) -> None:
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    list(archive.segments(descriptor))
    shipped = archive.shipped_end(descriptor)
    before = tiers.writer.position
    tiers.shipped.is_away = True
    tiers.add(500)
    archive.refresh()
    assert archive.recordings() == [descriptor]
    assert next(iter(archive.segments(descriptor))) == 0
    with RecordingReader(archive, descriptor) as reader:
        assert reader.end_position() == tiers.writer.position
        assert [int(payload[:6]) for _, payload in messages(reader, before, reader.end_position())] == list(
            range(2000, 2500)
        )
        with pytest.raises(StoreError, match="refused"):
            reader.walk(0, shipped)


def test_a_process_that_never_saw_one_of_them_does_not_guess(tiers: Tiers) -> None:
    for tier in (tiers.tail, tiers.shipped):
        tier.is_away = True
        archive = TieredArchive(tiers.shipped, tiers.tail)
        with pytest.raises(StoreError, match="refused"):
            archive.recordings()
        tier.is_away = False


def test_a_tail_of_another_archive_is_refused(tiers: Tiers, tmp_path: Path) -> None:
    other = Recorder(tmp_path / "other", segment_length=SEGMENT)
    other.start(
        session_id=5, stream_id=1, initial_term_id=0, term_buffer_length=SEGMENT, mtu_length=1408, join_position=0
    )
    with pytest.raises(RecordingError, match="not the same"):
        TieredArchive(tiers.shipped, local_archive(tmp_path / "other")).recordings()
    other.close()
    for path, name in ((tiers.shipped_path, "a"), (tiers.tail_path, "b")):
        (path / IDENTITY_FILE).write_text(json.dumps({"id": name, "host": f"host-{name}"}))
    with pytest.raises(RecordingError, match="same archive"):
        TieredArchive(local_archive(tiers.shipped_path), local_archive(tiers.tail_path)).recordings()


def test_a_range_in_neither_tier_is_an_error(tiers: Tiers) -> None:
    os.unlink(tiers.shipped_path / f"0-{SEGMENT}.rec")
    with pytest.raises(RecordingError, match=f"0-{SEGMENT}.rec"):
        numbers(TieredArchive(tiers.shipped, tiers.tail))


@pytest.mark.parametrize("seed", long_after(6, range(20)))
def test_a_live_reader_sees_each_message_once_across_moves_and_outages(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    tiers = Tiers(tmp_path)
    tiers.add(700)
    tiers.ship()
    archive = TieredArchive(tiers.shipped, tiers.tail)
    (descriptor,) = archive.recordings()
    seen: list[int] = []
    with RecordingReader(archive, descriptor) as reader:
        position = 0
        for _ in range(30):
            tiers.add(rng.randrange(0, 400))
            if rng.random() < 0.5:
                tiers.ship(purge=rng.random() < 0.7)
            tiers.tail.is_away = rng.random() < 0.3
            tiers.shipped.is_away = not tiers.tail.is_away and rng.random() < 0.2
            try:
                archive.refresh()
                (descriptor,) = archive.recordings()
                end = reader.end_position()
                rows = [int(payload[:6]) for _, payload in messages(reader, position, end)]
            except StoreError:
                continue  # a later trigger rereads the same range
            seen += rows
            position = end
        tiers.tail.is_away = tiers.shipped.is_away = False
        archive.refresh()
        seen += [int(payload[:6]) for _, payload in messages(reader, position, reader.end_position())]
    assert seen == list(range(tiers.count))
    tiers.close()


def test_the_tail_is_an_option_with_its_own_options(tiers: Tiers) -> None:
    (archive,) = open_archives(tiers.shipped_path, ReadOptions.parse({"tail": str(tiers.tail_path)}))
    assert isinstance(archive, TieredArchive)
    assert numbers(archive) == list(range(2000))
    with pytest.raises(ConfigurationError, match="no option"):
        open_archives(tiers.shipped_path, ReadOptions.parse({"tail": "http://127.0.0.1:1", "tail.x": "1"}))
    with pytest.raises(ConfigurationError, match="tail="):
        ReadOptions.parse({"tail.token": "1"})
