"""Messages of Aeron Archive: any bytes are a message, which encodes to the same bytes, or refused by a named rule."""

from __future__ import annotations

from tests.support.archive_messages import sample

from mainstem.archive.messages import SCHEMA_VERSION, TYPES, MessageReader, decode

RULES = {"header", "schema id", "template id", "block length", "data length"}
SEEDS = [each.encode(**sample(each)) for each in TYPES]


def target(data: bytes) -> None:
    """Process one input."""
    reader = MessageReader()
    message = reader.read(data)
    if message is None:
        assert reader.refused.keys() <= RULES
        assert reader.refused.total() == 1
        return
    if any(isinstance(value, str) and not value.isascii() for value in message.values.values()):
        return  # non-ASCII characters were replaced
    encoded = message.type.encode(**message.values)
    assert decode(encoded) == message
    assert encoded[6] == SCHEMA_VERSION
