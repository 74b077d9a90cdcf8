"""The options of sources and sinks."""

from __future__ import annotations

from dataclasses import fields

import pytest

from mainstem.errors import ConfigurationError
from mainstem.sim.clock import ManualClock
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.option_table import TriggerDelay, table_of
from mainstem.spark.sinks.channel import ChannelSink
from mainstem.spark.sinks.channels import ChannelOptions
from mainstem.spark.sources.capture import CaptureSource
from mainstem.spark.sources.capture_options import CaptureOptions
from mainstem.spark.sources.live import LiveOptions, LiveSource, parse_live_options
from mainstem.spark.sources.options import RecordingOptions, parse_options
from mainstem.spark.sources.recording import RecordingSource


@pytest.mark.parametrize("kind", [RecordingOptions, CaptureOptions, LiveOptions, ChannelOptions])
def test_every_option_is_read_documented_and_known_to_the_source(kind: type) -> None:
    table = table_of(kind)
    others = {"read", "store_options", "reading", "codec_options"}
    assert {each.name for each in fields(kind)} - table.keys() <= others, "a field without an option(...)"
    assert len({each.name.lower() for each in table.values()}) == len(table)
    sources = {RecordingOptions: RecordingSource, CaptureOptions: CaptureSource, LiveOptions: LiveSource}
    source = (sources | {ChannelOptions: ChannelSink})[kind]
    for each in table.values():
        assert each.meaning
        assert f"``{each.name}``" in str(source.__doc__)


def test_a_spy_is_a_live_channel() -> None:
    channel = "aeron-spy:aeron:udp?endpoint=localhost:20121"
    assert IngestOptions(source=channel, out="table").is_live
    assert parse_live_options({"channel": channel, "streamId": "1001"}).channel == channel
    with pytest.raises(ConfigurationError, match="must be an Aeron channel"):
        parse_live_options({"channel": "/data/recordings", "streamId": "1001"})


def test_a_micro_batch_is_held_back_until_enough_is_new_or_the_delay_has_passed() -> None:
    clock = ManualClock()
    delay = TriggerDelay(100, 1000, clock)
    assert not delay.holds(1)  # the first micro-batch
    assert delay.holds(99)
    assert not delay.holds(100)
    clock.advance_ns(999)
    assert delay.holds(99)
    clock.advance_ns(1)
    assert not delay.holds(1)
    assert delay.holds(1)
    assert not TriggerDelay(None, 1000, clock).holds(0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"minBytesPerTrigger": "2m", "maxBytesPerTrigger": "1m"},
            "minBytesPerTrigger must not exceed maxBytesPerTrigger (got '2m'",
        ),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay limits the delay of minBytesPerTrigger, which is not set"),
        ({"minBytesPerTrigger": "1k", "maxTriggerDelay": "5"}, "maxTriggerDelay must be a duration such as 500ms, 30s"),
        ({"maxRowsPerPartition": "0"}, "maxRowsPerPartition must be above 0 (got '0')"),
        ({"maxRowsPerPartition": "5", "rows": "frames"}, "maxRowsPerPartition counts messages"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss must be true or false (got 'yes')"),
    ],
)
def test_a_wrong_option_is_named_as_the_user_wrote_it(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"path": "/data"} | options)
    assert sentence in str(caught.value)


def test_a_delay_is_written_as_for_kafka() -> None:
    read = {
        text: parse_options({"path": "x", "minBytesPerTrigger": "1", "maxTriggerDelay": text}).max_trigger_delay_ns
        for text in ("500ms", "2s", "15m", "1h")
    }
    assert list(read.values()) == [500 * 10**6, 2 * 10**9, 900 * 10**9, 3600 * 10**9]
