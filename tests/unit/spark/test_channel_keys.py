"""Messages of the sink, and their keys: equal for each attempt of a write, and different for each write."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mainstem.errors import ConfigurationError
from mainstem.message_keys import MessageKey
from mainstem.spark.sinks import channel as sink
from mainstem.spark.sinks.channels import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = {"channel": "aeron:ipc", "streamId": "1"}


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The keys of the messages that writers send."""
    sent: list[int] = []

    def send(_: Any, epoch: int, partition: int, messages: list[bytes]) -> int:
        sent.extend(MessageKey(epoch, partition, row).reserved_value() for row in range(len(messages)))
        return len(messages)

    monkeypatch.setattr(sink, "send", send)
    return sent


def in_task(monkeypatch: pytest.MonkeyPatch, partition: int, **properties: str) -> None:
    context = SimpleNamespace(partitionId=lambda: partition, getLocalProperty=properties.get)
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))


def rows(count: int) -> Iterator[dict[str, bytes]]:
    return ({"payload": b"tick"} for _ in range(count))


def test_each_batch_has_keys_of_its_own_and_each_attempt_of_a_task_the_same(
    monkeypatch: pytest.MonkeyPatch, keys: list[int]
) -> None:
    for _ in range(50):
        # Writes that are planned at the same time; Spark pickles the writer to the tasks.
        writer = pickle.dumps(sink.ChannelWriter(parse_options(OPTIONS)))
        for partition in (0, 1, 0, 1):
            in_task(monkeypatch, partition)
            pickle.loads(writer).write(rows(10))
    assert len(keys) == 50 * 40
    assert len(set(keys)) == 50 * 20


def test_each_query_has_keys_of_its_own_and_each_repeat_of_a_micro_batch_the_same(
    monkeypatch: pytest.MonkeyPatch, keys: list[int]
) -> None:
    for query_id in ("6a1c2e7e", "6a1c2e7f"):
        for number in (0, 1, 1, 2):
            for partition in (0, 1):
                in_task(monkeypatch, partition, **{sink.QUERY_PROPERTY: query_id, sink.BATCH_PROPERTY: str(number)})
                sink.ChannelStreamWriter(parse_options(OPTIONS)).write(rows(10))
    assert len(keys) == 2 * 4 * 20
    assert len(set(keys)) == 2 * 3 * 20


@pytest.mark.parametrize(
    "batches",
    [
        [pa.record_batch({"payload": pa.array(["tide", "åland"])}), pa.record_batch({"payload": pa.array([b"\xff"])})],
        [{"payload": "tide"}, {"payload": "åland"}, {"payload": bytearray(b"\xff")}],
    ],
    ids=["Arrow batches", "rows"],
)
def test_messages_are_bytes_and_text_is_sent_as_utf_8(monkeypatch: pytest.MonkeyPatch, batches: list[Any]) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(sink, "send", lambda _, __, ___, messages: sent.extend(messages) or len(messages))
    in_task(monkeypatch, 0)
    sink.ChannelWriter(parse_options(OPTIONS)).write(iter(batches))
    assert sent == [b"tide", "åland".encode(), b"\xff"]
    assert {type(each) for each in sent} == {bytes}
    with pytest.raises(ConfigurationError, match="has nulls"):
        sink.ChannelWriter(parse_options(OPTIONS)).write(iter([{"payload": None}]))


def test_an_epoch_that_does_not_fit_is_refused() -> None:
    assert parse_options({**OPTIONS, "epoch": "7"}).epoch == 7
    for epoch in ("-1", str(1 << 63)):
        with pytest.raises(ConfigurationError, match="must be from 0 to 2"):
            parse_options({**OPTIONS, "epoch": epoch})
