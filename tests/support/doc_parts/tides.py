"""A directory ``tides`` with a recording of stream 1001, whose messages are JSON objects."""

from pathlib import Path

from tests.support.streams import Stream, record

from mainstem.recording import Recorder

with Recorder(Path("tides"), segment_length=1 << 18) as recorder:
    stream = Stream()
    writer = stream.start(recorder, channel="aeron:udp?endpoint=localhost:20121")
    payloads = [b'{"id": %d, "price": %d.5}' % (n, 40 + n % 7) for n in range(500)]
    record(writer, stream, payloads, time_ns=1_769_860_800_000_000_000, step_ns=1_000_000)
