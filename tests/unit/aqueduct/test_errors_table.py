"""The error table in docs/aqueduct-ends.md: every error in it can occur, and the docstrings list the same ones."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from memory_adapter import join, turns
from tests.support.waiting import soon

from mainstem import aqueduct
from mainstem import errors as mainstem_errors
from mainstem.aqueduct import Limits, Message
from mainstem.aqueduct.aio import Connection, Receiver, Sender, channel
from mainstem.errors import ConnectionLost, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PAGE = Path(__file__).resolve().parents[3] / "docs" / "aqueduct-ends.md"


def read_table() -> dict[str, list[str]]:
    section = PAGE.read_text().split("## Errors of each call")[1].split("##")[0]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    return {call: re.findall(r"`(\w+)`", names) for call, names in rows}


TABLE = read_table()
PAIRS = [(call, name) for call, names in TABLE.items() for name in names]


def error_class(name: str) -> type[BaseException]:
    return OSError if name == "OSError" else getattr(mainstem_errors, name)  # type: ignore[no-any-return]


def function_of(call: str) -> Any:
    """Return the blocking variant's function; the asyncio variant documents only what differs."""
    owner, _, method = call.partition(".")
    if not method:
        return getattr(aqueduct, owner, None)
    return getattr(getattr(aqueduct, owner), method)


@pytest.mark.parametrize("call", [call for call in TABLE if " " not in call])
def test_docstrings_list_the_errors_of_the_table(call: str) -> None:
    docstring = f"{inspect.getdoc(function_of(call))}\n"
    section = re.search(r"^Raises:\n((?:    .*\n)+)", docstring, re.MULTILINE)
    named = re.findall(r"^    (\w+):", section[1], re.MULTILINE) if section else []
    assert sorted(named) == sorted(TABLE[call])


def test_the_table_lists_every_public_call_that_waits() -> None:
    public = {"connect", "serve"}
    for name, owner in (
        ("Connection", Connection),
        ("Sender", Sender),
        ("Receiver", Receiver),
        ("Server", aqueduct.aio.Server),
    ):
        public |= {
            f"{name}.{method}"
            for method, function in inspect.getmembers(owner, inspect.iscoroutinefunction)
            if not method.startswith("_")
        }
    assert public <= TABLE.keys()


WORLDS: list[World] = []
TIMEOUT_S = 0.02


class World:
    """A client's and a server's connection, and a channel between them that has ended in a given way."""

    def __init__(self) -> None:
        self.client, self.server = join(Limits(receive_messages=1))
        self.kept: list[Any] = []
        WORLDS.append(self)

    async def pair(self, way: str) -> tuple[Sender[Any], Receiver[Any]]:
        """Return a sender and a receiver whose channel has ended in that way."""
        await self.client.headers()
        if way == "LocalProtocolError":
            sender, receiver = channel()
            other, far = channel()
            await self.client.sender.send(Message(b"", [sender, far]))
            self.kept += [sender, receiver, other, far]
            return sender, far
        if way == "LostInTransit":
            await self.client.sender.send(b"fills the queue")
            sender, receiver = channel()
            far, near = channel()
            self.kept += [receiver, far]
            await self.client.sender.send(Message(b"never received", [receiver, far]))
            await sender.send(b"lost too")
            await turns(5)
            self.server.receiver.abort()
            with contextlib.suppress(mainstem_errors.NoReceivers):
                await soon(self.client.sender.wait_closed())
            await turns(20)
            return sender, near
        sender, far_receiver = channel()
        far_sender, receiver = channel()
        await self.client.sender.send(Message(b"", [far_receiver, far_sender]))
        message = await self.server.receiver.receive()
        far_receiver, far_sender = message.attachments
        self.kept += [far_receiver, far_sender]
        for number in range(3):
            await sender.send(b"%d" % number)
        await turns(5)
        if way == "ClosedError":
            sender.finish()
            far_sender.finish()
        elif way == "Aborted":
            sender.abort()
            far_sender.abort()
        elif way == "NoReceivers":
            far_receiver.abort()
        elif way == "ConnectionLost":
            self.client._protocol.fail(ConnectionLost("the path is gone"))
        elif way == "RemoteProtocolError":
            await far_sender.send(b"\xc1")
            self.client._protocol.serializer = aqueduct.MsgspecSerializer()
        elif way in ("BackPressured", "Timeout"):
            sender.configure(max_messages=1)
            with contextlib.suppress(mainstem_errors.BackPressured):
                while True:
                    sender.try_send(b"x")
        if way not in ("BackPressured", "Timeout"):
            await turns(20)
        return sender, receiver


async def call_sender(call: str, way: str) -> None:
    world = World()
    sender, _ = await world.pair(way)
    if call == "Sender.try_send":
        sender.try_send(b"late")
    elif call == "Sender.configure":
        sender.configure(max_messages=0 if way == "ConfigurationError" else 3)
    else:
        arguments = [b"late"] if "send" in call else []
        await getattr(sender, call.partition(".")[2])(*arguments, timeout=TIMEOUT_S if way == "Timeout" else None)


async def call_receiver(call: str, way: str) -> None:
    world = World()
    _, receiver = await world.pair(way)
    if call == "Receiver.receive":
        await receiver.receive(timeout=TIMEOUT_S if way == "Timeout" else None)
    elif call == "Receiver.try_receive":
        receiver.try_receive()
    else:
        async for _ in receiver:
            pass


async def call_connection(call: str, way: str) -> None:
    world = World()
    client = world.client
    if call == "Connection.close":
        if way == "Timeout":
            for _ in range(3):
                await client.sender.send(b"not received")
            client._protocol.engine.context.limits = Limits()
        else:
            world.kept += await world.pair(way)
            if way == "LostInTransit":
                # The application's own error, raised here by a call.
                with contextlib.suppress(mainstem_errors.NoReceivers):
                    await client.sender.send(b"late")
        await client.close(timeout=TIMEOUT_S)
        return
    if way == "Timeout":
        await getattr(client, call.partition(".")[2])(timeout=0.0)
        return
    error = ConnectionLost("the path is gone") if way == "ConnectionLost" else RemoteProtocolError("no", rule="none")
    client._protocol.fail(error)
    await getattr(client, call.partition(".")[2])()


async def call_connect(call: str, way: str) -> None:
    pytest.importorskip("qh3")
    files = aqueduct.make_certificates(call_connect.directory)  # type: ignore[attr-defined]

    async def handler(connection: Connection) -> None:
        await asyncio.sleep(10)

    if call == "Server.wait":
        async with aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key) as server:
            await server.wait(timeout=TIMEOUT_S)
    elif call == "serve":
        if way == "ConfigurationError":
            await aqueduct.aio.serve(handler)
        await aqueduct.aio.serve(handler, "192.0.2.1", certificate=files.certificate, key=files.key)
    elif way == "ConfigurationError":
        await aqueduct.aio.connect("localhost", 0)
    elif way == "Timeout":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            await aqueduct.aio.connect("127.0.0.1", silent.getsockname()[1], ca=files.ca, timeout=0.1)
    elif way == "ConnectionLost":
        async with aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key) as server:
            # The certificate is not trusted.
            await aqueduct.aio.connect("localhost", server.port)
    else:
        async with aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key) as server:
            serializers = [aqueduct.MsgspecSerializer(), aqueduct.CborSerializer()]
            await aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers)


CALLS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "Sender": call_sender,
    "Receiver": call_receiver,
    "Connection": call_connection,
    "connect": call_connect,
    "serve": call_connect,
    "Server": call_connect,
}


@pytest.mark.parametrize(("call", "name"), PAIRS, ids=lambda value: str(value).replace(" ", "-"))
async def test_every_error_in_the_table_is_raised(call: str, name: str, tmp_path: Path) -> None:
    call_connect.directory = tmp_path  # type: ignore[attr-defined]
    provoke = CALLS[call.removeprefix("async with ").removeprefix("async for ").partition(".")[0]]
    raised = None
    try:
        await soon(provoke(call, name))
    except Exception as error:
        raised = error
    while WORLDS:
        WORLDS.pop().client.abort()
    assert type(raised) is error_class(name), repr(raised)
