"""Bugs in recordings and in Spark's use of them: indexes, segments, offsets, repeats."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

BUGS = (
    Bug(
        name="an index entry is off by a frame",
        harm="a query that starts at a time begins in the middle of a message",
        file="recording/writer.py",
        old="                last = IndexEntry(position, ",
        new="                last = IndexEntry(position + DATA_HEADER_LENGTH, ",
        finder=Simulator(scenarios=("recorders",)),
    ),
    Bug(
        name="the last message before a segment's end is dropped",
        harm="one message of each segment is missing from every query",
        file="recording/reader.py",
        old="                    run = MappedRange(segment.memory, place, place + chunk_end - at, base + at, segment.name)\n",
        new="                    cut = 64 if chunk_end == self.descriptor.segment_file_length else 0\n"
        "                    run = MappedRange(segment.memory, place, place + chunk_end - at - cut, base + at, segment.name)\n",
        finder=Simulator(scenarios=("recorders",)),
    ),
    Bug(
        name="a position is published before its frames are written",
        harm="a reader sees zeros where a message should be",
        file="recording/writer.py",
        old="            if end > offset:\n",
        new="            self._index.publish(start + length, time_ns)\n            if end > offset:\n",
        finder=Simulator(scenarios=("recorders",)),
    ),
    Bug(
        name="an archive says that it has recorded what it has only read",
        harm="messages that an archive acknowledged are missing from its recording",
        file="archive/server/conductor.py",
        old="        return NULL if recording is None else recording.position\n",
        new="        return NULL if recording is None else recording.position + 4096\n",
        finder=Simulator(scenarios=("archive",)),
    ),
    Bug(
        name="a replay takes the position where an active recording is for its end",
        harm="a replay that follows a recording ends in the middle of it",
        file="archive/server/replays.py",
        old="        return self._session.position, self._session.is_done\n",
        new="        return self._session.position, True\n",
        finder=Simulator(scenarios=("archive",)),
    ),
    Bug(
        name="an archive handles a message that only archives send as a request",
        harm="one client's message makes the archive drop requests of others",
        file="archive/server/conductor.py",
        old="        if not request.name.endswith(_REQUESTS):\n",
        new="        if False:\n",
        finder=Suite(selection=("tests/unit/archive/test_hostile_requests.py",)),
    ),
    Bug(
        name="a replay that ends because its archive was killed counts as whole",
        harm="a program takes the first part of a recording for all of it",
        file="archive/calls.py",
        old="        if why:\n",
        new="        if False:\n",
        finder=Suite(selection=("tests/system/test_archive_client.py",)),
    ),
    Bug(
        name="an archive sends errors as long as the channels that they quote",
        harm="one client's request ends the duty cycle, and requests of others are lost",
        file="archive/server/control_session.py",
        old="text[:MAX_TEXT_LENGTH]",
        new="text",
        finder=Suite(selection=("tests/unit/archive/test_hostile_requests.py",)),
    ),
    Bug(
        name="a durable recorder does not flush the name of a new segment",
        harm="messages that were taken from a publisher are gone after a loss of power",
        file="recording/segments.py",
        old="        if is_new and self._durable:\n",
        new="        if False:\n",
        finder=Simulator(scenarios=("power_loss",)),
    ),
    Bug(
        name="recovery trusts a page of zeros",
        harm="after a loss of power a message has zeros in its middle",
        file="recording/recovery.py",
        old="            lost = _lost_from(segment.memory, begin, end)\n",
        new="            lost = end\n",
        finder=Simulator(scenarios=("power_loss",)),
    ),
    Bug(
        name="a store does not flush the name of what it has put",
        harm="what was shipped, and deleted here, is gone after a loss of power",
        file="store/local.py",
        old="            self._disk.rename(self._write_new(path, data), path)\n"
        "            self._disk.sync_directory(path.parent)\n",
        new="            self._disk.rename(self._write_new(path, data), path)\n",
        finder=Simulator(scenarios=("power_loss",)),
    ),
    Bug(
        name="Spark: an offset is committed too early",
        harm="a micro-batch whose function failed is never tried again",
        file="spark/foreach_batch.py",
        old="        function(batch, batch_id)\n        store.put(name, str(batch_id).encode())\n",
        new="        store.put(name, str(batch_id).encode())\n        function(batch, batch_id)\n",
        finder=Suite(selection=("tests/unit/spark/formats/test_foreach_batch.py",)),
    ),
    Bug(
        name="a repeat filter forgets",
        harm="a retried micro-batch's messages are processed twice",
        file="message_keys.py",
        old="        self._rows.move_to_end(place)\n",
        new="",
        finder=Suite(selection=("tests/unit/test_message_keys.py",)),
    ),
)
