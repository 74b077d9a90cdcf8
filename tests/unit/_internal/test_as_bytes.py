"""Data to send is kept exactly or refused: a number does not become that many zeros."""

from __future__ import annotations

import array
from typing import Any

import pytest
from tests.support.mux_pair import jmux_pair

from mainstem._core.mux.queues import OutQueue
from mainstem._internal.validation import as_bytes, as_message
from mainstem.aqueduct import Message
from mainstem.aqueduct.frames import as_headers
from mainstem.aqueduct.serializers import RawSerializer
from mainstem.errors import LocalProtocolError

NO_BYTES = [5, 10**12, True, 1.5, None, [1, 2], (1,), {1}]


@pytest.mark.parametrize("data", [b"tide", bytearray(b"tide"), memoryview(b"tide"), memoryview(b"t-i-d-e")[::2]])
def test_bytes_are_kept(data: Any) -> None:
    assert as_bytes(data) == as_message(data) == b"tide"


def test_any_buffer_is_kept_as_it_lies_in_memory() -> None:
    numbers: Any = array.array("h", [1, -1])
    assert as_bytes(numbers) == numbers.tobytes()


def test_what_changes_later_was_copied() -> None:
    data = bytearray(b"tide")
    kept = as_bytes(data)
    data[:] = b"ebb!"
    assert kept == b"tide"


def test_text_is_encoded_as_utf_8() -> None:
    assert as_message("Köln") == "Köln".encode()
    with pytest.raises(TypeError):
        as_bytes("tide")  # type: ignore[arg-type]


@pytest.mark.parametrize("data", NO_BYTES)
def test_anything_else_is_refused_wherever_it_enters(data: Any) -> None:
    with pytest.raises(TypeError):
        as_message(data)
    queue = OutQueue()
    with pytest.raises(TypeError):
        queue.append(data)
    assert queue.size == 0
    with pytest.raises(TypeError):
        as_headers({"key": data})
    taken: list[Any] = []
    for message in (data, Message(data, ["a handle"])):
        with pytest.raises(LocalProtocolError, match="bytes"):
            RawSerializer().encode(message, taken.append)  # type: ignore[arg-type]
    assert taken == []


async def test_a_call_with_a_number_is_rejected_and_the_next_one_works() -> None:
    async def echo(session: Any) -> None:
        session.write(await session.read(-1))

    client, _ = jmux_pair(echo)
    with pytest.raises(TypeError):
        await client.request(5)  # type: ignore[arg-type]
    assert await client.request(b"on") == b"on"
    await client.close()
