"""One archive in two places: no row twice, none missing, while segments move and while one of the places is away."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.support.two_places import SEGMENT, Places

from mainstem.errors import ConfigurationError, RecordingError, StoreError
from mainstem.recording import messages
from mainstem.recording.archive import IDENTITY_FILE
from mainstem.recording.directories import directory_archive
from mainstem.recording.opening import open_archive
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.tailed import TailedArchive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    both = Places(tmp_path)
    both.add(1000)
    both.ship(purge=True)
    both.add(1000)
    yield both
    both.close()


def numbers(archive: TailedArchive) -> list[int]:
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        return [int(payload[:6]) for _, payload in messages(reader, 0, reader.end_position())]


def test_every_message_comes_once_from_the_place_that_has_it(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    assert places.tail.segments(places.tail.recordings()[0]).keys().isdisjoint({0, SEGMENT})
    assert numbers(archive) == list(range(2000))
    (descriptor,) = archive.recordings()
    bases = list(archive.segments(descriptor))
    assert bases == sorted(set(bases)) == list(range(0, places.writer.position, SEGMENT))
    assert archive.recorded_positions([descriptor]) == [places.writer.position]


def test_segments_may_move_while_they_are_read(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    seen = []
    with RecordingReader(archive, descriptor) as reader:
        for _, payload in messages(reader, 0, reader.end_position()):
            seen.append(int(payload[:6]))
            if len(seen) == 1100:
                places.ship(purge=True)
                archive.refresh()
    assert seen == list(range(2000))


def test_segments_that_have_moved_are_read_by_a_reader_that_planned_before(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    archive.shipped_end(descriptor)
    places.ship(purge=True)
    with RecordingReader(archive, descriptor) as reader:
        assert [int(payload[:6]) for _, payload in messages(reader, 0, reader.end_position())] == list(range(2000))


def test_closed_ranges_are_read_while_the_tail_is_away(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    end = archive.shipped_end(descriptor)
    places.tail.is_away = True
    fresh = TailedArchive(places.closed, places.tail)
    for each in (archive, fresh):
        with RecordingReader(each, descriptor) as reader:
            assert reader.walk(0, end).messages > 700
            assert reader.recorded_time_ns(end - 4096) is not None
            with pytest.raises(StoreError, match="refused"):
                reader.walk(end, places.writer.position)


def test_a_process_that_saw_both_goes_on_while_the_tail_is_away(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    with RecordingReader(archive, descriptor) as reader:
        end = reader.end_position()
        places.tail.is_away = True
        archive.refresh()
        assert archive.recordings() == [descriptor]
        assert next(iter(archive.segments(descriptor))) == 0
        assert reader.end_position() == end, "no position goes back"
        places.add(1000)
        places.ship()
        archive.refresh()
        assert reader.end_position() >= places.writer.position // SEGMENT * SEGMENT > end
        places.tail.is_away = False
        assert reader.end_position() == places.writer.position


def test_a_process_that_saw_both_goes_on_while_the_closed_part_is_away(places: Places) -> None:
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    list(archive.segments(descriptor))
    shipped = archive.shipped_end(descriptor)
    before = places.writer.position
    places.closed.is_away = True
    places.add(500)
    archive.refresh()
    assert archive.recordings() == [descriptor]
    assert next(iter(archive.segments(descriptor))) == 0
    with RecordingReader(archive, descriptor) as reader:
        assert reader.end_position() == places.writer.position
        assert [int(payload[:6]) for _, payload in messages(reader, before, reader.end_position())] == list(
            range(2000, 2500)
        )
        with pytest.raises(StoreError, match="refused"):
            reader.walk(0, shipped)


def test_a_process_that_never_saw_one_of_them_does_not_guess(places: Places) -> None:
    for place in (places.tail, places.closed):
        place.is_away = True
        archive = TailedArchive(places.closed, places.tail)
        with pytest.raises(StoreError, match="refused"):
            archive.recordings()
        place.is_away = False


def test_a_tail_of_another_archive_is_refused(places: Places, tmp_path: Path) -> None:
    other = Recorder(tmp_path / "other", segment_length=SEGMENT)
    other.start(
        session_id=5, stream_id=1, initial_term_id=0, term_buffer_length=SEGMENT, mtu_length=1408, join_position=0
    )
    with pytest.raises(RecordingError, match="not the same"):
        TailedArchive(places.closed, directory_archive(tmp_path / "other")).recordings()
    other.close()
    for path, name in ((places.closed_path, "a"), (places.tail_path, "b")):
        (path / IDENTITY_FILE).write_text(json.dumps({"id": name, "host": f"host-{name}"}))
    with pytest.raises(RecordingError, match="same archive"):
        TailedArchive(directory_archive(places.closed_path), directory_archive(places.tail_path)).recordings()


def test_what_neither_place_has_is_an_error(places: Places) -> None:
    os.unlink(places.closed_path / f"0-{SEGMENT}.rec")
    with pytest.raises(RecordingError, match=f"0-{SEGMENT}.rec"):
        numbers(TailedArchive(places.closed, places.tail))


@pytest.mark.parametrize("seed", range(20))
def test_a_live_reader_sees_each_message_once_whatever_moves_and_whatever_is_away(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    places = Places(tmp_path)
    places.add(700)
    places.ship()
    archive = TailedArchive(places.closed, places.tail)
    (descriptor,) = archive.recordings()
    seen: list[int] = []
    with RecordingReader(archive, descriptor) as reader:
        position = 0
        for _ in range(30):
            places.add(chance.randrange(0, 400))
            if chance.random() < 0.5:
                places.ship(purge=chance.random() < 0.7)
            places.tail.is_away = chance.random() < 0.3
            places.closed.is_away = not places.tail.is_away and chance.random() < 0.2
            try:
                archive.refresh()
                (descriptor,) = archive.recordings()
                end = reader.end_position()
                rows = [int(payload[:6]) for _, payload in messages(reader, position, end)]
            except StoreError:
                continue  # a later trigger reads the same range again
            seen += rows
            position = end
        places.tail.is_away = places.closed.is_away = False
        archive.refresh()
        seen += [int(payload[:6]) for _, payload in messages(reader, position, reader.end_position())]
    assert seen == list(range(places.count))
    places.close()


def test_the_tail_is_an_option_with_options_of_its_own(places: Places) -> None:
    archive = open_archive(places.closed_path, {"tail": str(places.tail_path)})
    assert isinstance(archive, TailedArchive)
    assert numbers(archive) == list(range(2000))
    with pytest.raises(ConfigurationError, match="no option"):
        open_archive(places.closed_path, {"tail": "http://127.0.0.1:1", "tail.x": "1"})
    with pytest.raises(ConfigurationError, match="tail="):
        open_archive(places.closed_path, {"tail.token": "1"})
