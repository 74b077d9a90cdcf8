"""Messages that serializers cannot read, and errors that only occur when a message is lost, through the whole stack."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import soon

from mainstem import aqueduct
from mainstem.aqueduct import CborSerializer, Message, MsgspecSerializer
from mainstem.aqueduct.aio import Connection, Sender, channel
from mainstem.errors import Aborted, LostInTransit, RemoteProtocolError, Timeout

if TYPE_CHECKING:
    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

pytest.importorskip("msgspec")
pytest.importorskip("cbor2")

INDEX_AT_THE_END = "attachment -1, counted from the end"
PAYLOADS = {
    MsgspecSerializer: {
        "nothing": b"",
        "half a map": b"\x82\xa1a\x01",
        "rubbish behind a value": b"\x01\x01",
        "an unknown extension": b"\xd4\x07\x00",
        "an attachment that is not there": b"\xd6\x01\x00\x00\x00\x09",
        "a handle of the other kind": b"\xd6\x02\x00\x00\x00\x00",
        "one attachment twice": b"\x92\xd6\x01\x00\x00\x00\x00\xd6\x01\x00\x00\x00\x00",
    },
    CborSerializer: {
        "nothing": b"",
        "half a map": b"\xa2\x61a\x01",
        "a break that ends nothing": b"\xff",
        "an attachment that is not there": b"\xd9\xa0\x01\x09",
        "a handle of the other kind": b"\xd9\xa0\x02\x00",
        "one attachment twice": b"\x82\xd9\xa0\x01\x00\xd9\xa0\x01\x00",
        INDEX_AT_THE_END: b"\xd9\xa0\x01\x20",
        "an index that is not a number": b"\xd9\xa0\x01\x61a",
        "a pattern that is none": b"\xd8\x23\x61(",
        "a thousand arrays": b"\x81" * 100_000,
    },
}
CASES = [(kind, name) for kind, payloads in PAYLOADS.items() for name in payloads]


class Crafted:
    """A client's serializer that claims one type and sends another."""

    def __init__(self, header: str) -> None:
        self.header = header

    def encode(self, message: Any, attach: Any) -> bytes:
        for handle in message.attachments:
            attach(handle)
        return bytes(message.payload)

    def decode(self, payload: bytes, detach: Any) -> Any:
        return payload


@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_an_undecodable_payload_is_a_peer_error_and_drops_attachments(
    certificates: CertificateFiles, kind: Any, name: str
) -> None:
    caught: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def handler(connection: Connection) -> None:
        try:
            await connection.receiver.receive()
        except Exception as error:
            caught.set_result(error)
        await connection.wait_closed()

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, serializers=[kind()]
    )
    serializers = [Crafted(kind.header)]
    async with (
        serving,
        aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca, serializers=serializers) as connection,
    ):
        given, kept = channel()
        await connection.sender.send(Message(PAYLOADS[kind][name], [given]))
        error = await soon(caught)
        assert isinstance(error, RemoteProtocolError), repr(error)
        assert error.rule == "serialization"
        with pytest.raises(Aborted):
            await soon(kept.receive())


async def test_attachments_of_an_unread_message_are_lost_in_transit(
    certificates: CertificateFiles,
) -> None:
    close = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await close.wait()
        connection.receiver.abort()
        await connection.wait_closed()

    serving = await aqueduct.aio.serve(
        handler, certificate=certificates.certificate, key=certificates.key, receive_messages=1
    )
    async with serving, aqueduct.aio.connect("localhost", serving.port, ca=certificates.ca) as connection:
        await connection.sender.send(b"fills the queue")
        sender, receiver = channel()
        given, kept = channel()
        await connection.sender.send(Message(b"is never taken", [receiver, given]))
        inner, inner_receiver = channel()
        await sender.send(Message(b"hangs on it", [inner_receiver]))
        close.set()
        with pytest.raises(LostInTransit):
            await soon(kept.receive())
        for lost in (sender, inner):
            with pytest.raises(LostInTransit):
                await soon(lost.wait_closed())
        with pytest.raises(LostInTransit):
            await sender.send(b"sticky")
        assert isinstance(inner, Sender)
        connection.abort()
        await connection.close()


async def test_connecting_times_out_while_the_server_has_not_chosen_a_serializer(
    certificates: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(connection: Connection) -> None:
        raise AssertionError("it was not accepted")

    monkeypatch.setattr(aqueduct.aio.Server, "_accept", lambda *_: None)
    async with aqueduct.aio.serve(handler, certificate=certificates.certificate, key=certificates.key) as server:
        with pytest.raises(Timeout, match="waiting for the peer's headers"):
            await aqueduct.aio.connect(
                "localhost",
                server.port,
                ca=certificates.ca,
                serializers=[MsgspecSerializer(), CborSerializer()],
                timeout=0.3,
            )


@pytest.mark.parametrize("serializer", [MsgspecSerializer, CborSerializer])
def test_a_value_that_cannot_be_encoded_is_a_type_error(serializer: Any) -> None:
    with pytest.raises(TypeError, match="a value of type object cannot be encoded"):
        serializer().encode({"x": object()}, lambda handle: 0)
