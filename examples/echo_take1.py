"""The Aeron guide's first echo server and client, as simple as it can be: a client sends HELLO and its port, then numbers; the
server opens a publication to that port and sends back what it receives.

    python examples/echo_take1.py server 127.0.0.1 9000
    python examples/echo_take1.py client 127.0.0.1 8000 127.0.0.1 9000

It works, and shows every weakness that the guide lists. `mainstem.duologue` (the guide's second version) fixes each:

* 3.3.1, server disconnections: this client keeps sending even if the server is gone or never existed. There, each step of
  connecting has a timeout and raises `ConnectTimeout`, and the end of the server raises `ClosedError` (`client_core.py`).
* 3.3.2, the MTU is implicit: messages here happen to be short. There, the MTU is 1184, a multiple of 32 below 1200, and a message
  that is too long is refused before it is sent (`settings.py`).
* 3.3.3, bad messages are not punished: this server prints a line for every message before HELLO. There, the client
  gets `ERROR bad message` and is disconnected (`server_core.py`, `session.py`).
* 3.3.4, sending is not robust: this program gives up after five tries and only logs it. There, a send is retried for 500 ms and
  then raises an error (`outbox.py`).
* 3.3.5, work is done on Aeron's threads: here the handler of a client's image accepts the client, on the conductor's thread.
  There, handlers only queue, and one thread owns all state, which is asserted (`handshake.py`, `environment.py`).
* 3.3.6, the client cannot be behind NAT: this server sends to a port that the client named, and a router blocks that. There, the
  client registers itself as a destination (dynamic multi-destination-cast), so that the server's datagrams are responses.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import TYPE_CHECKING

from mainstem import Aeron, MediaDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem import Fragment, Image, Publication

STREAM_ID = 0x2044F002
TRIES = 5


def send(publication: Publication, text: str) -> bool:
    """Try to send a few times; only log a failure."""
    for _ in range(TRIES):
        if publication.offer(text.encode()) >= 0:
            print(f"send [session {publication.session_id:#x}]: {text}", flush=True)
            return True
        time.sleep(0.1)
    print(f"could not send: {text}", flush=True)
    return False


class ServerClient:
    """The server's state for one client: nothing until HELLO, then a publication to it."""

    def __init__(self, aeron: Aeron, image: Image) -> None:
        self.aeron = aeron
        self.source = image.source_identity
        self.publication: Publication | None = None

    def on_message(self, text: str) -> None:
        if self.publication is not None:
            send(self.publication, text)
        elif text.startswith("HELLO ") and text[6:].isdigit():
            address = self.source.rpartition(":")[0]
            self.publication = self.aeron.add_publication(f"aeron:udp?endpoint={address}:{text[6:]}", STREAM_ID)
        else:
            print(f"not a HELLO message: {text!r}", flush=True)

    def close(self) -> None:
        if self.publication is not None:
            self.publication.close()


def serve(aeron: Aeron, address: str, port: int, *, until: Callable[[], bool] = lambda: False) -> None:
    """Run the echo server until it is stopped."""
    clients: dict[int, ServerClient] = {}

    def on_connected(image: Image) -> None:
        print(f"client connected: {image.source_identity}", flush=True)
        clients[image.session_id] = ServerClient(aeron, image)

    def on_disconnected(image: Image) -> None:
        print(f"client disconnected: {image.source_identity}", flush=True)
        client = clients.pop(image.session_id, None)
        if client is not None:
            client.close()

    def on_message(message: Fragment) -> None:
        client = clients.get(message.header.session_id)
        if client is not None:
            client.on_message(bytes(message).decode())

    channel = f"aeron:udp?endpoint={address}:{port}|reliable=true"
    with aeron.add_subscription(
        channel, STREAM_ID, on_available_image=on_connected, on_unavailable_image=on_disconnected
    ) as subscription:
        print(f"subscription {channel}", flush=True)
        while not until():
            subscription.poll_messages(on_message, 10)
            time.sleep(0.01)
    for client in clients.values():
        client.close()


def talk(
    aeron: Aeron,
    local: tuple[str, int],
    remote: tuple[str, int],
    *,
    numbers: int = 0,
    interval: float = 1.0,
    patience: float = 10.0,
) -> list[str]:
    """Run the echo client: send HELLO, then ``numbers`` numbers (0: forever), one per interval; return the responses."""
    heard: list[str] = []

    def on_message(message: Fragment) -> None:
        heard.append(bytes(message).decode())
        print(f"response: {heard[-1]}", flush=True)

    with (
        aeron.add_subscription(f"aeron:udp?endpoint={local[0]}:{local[1]}|reliable=true", STREAM_ID) as subscription,
        aeron.add_publication(f"aeron:udp?endpoint={remote[0]}:{remote[1]}|reliable=true", STREAM_ID) as publication,
    ):
        deadline = time.monotonic() + patience
        while not publication.is_connected and time.monotonic() < deadline:
            time.sleep(0.01)
        send(publication, f"HELLO {local[1]}")
        sent = 0
        while not numbers or sent < numbers:
            send(publication, str(random.getrandbits(32)))
            sent += 1
            subscription.poll_messages(on_message, 10)
            time.sleep(interval)
        deadline = time.monotonic() + patience
        while len(heard) < sent and time.monotonic() < deadline:
            subscription.poll_messages(on_message, 10)
            time.sleep(0.01)
    return heard


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The guide's first echo server and client.")
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("address")
    server.add_argument("port", type=int)
    client = roles.add_parser("client")
    client.add_argument("address")
    client.add_argument("port", type=int)
    client.add_argument("server")
    client.add_argument("server_port", type=int)
    client.add_argument("--numbers", type=int, default=0)
    client.add_argument("--interval", type=float, default=1.0)
    client.add_argument("--patience", type=float, default=10.0)
    chosen = parser.parse_args(arguments)
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        if chosen.role == "server":
            try:
                serve(aeron, chosen.address, chosen.port)
            except KeyboardInterrupt:
                return 0
        heard = talk(
            aeron,
            (chosen.address, chosen.port),
            (chosen.server, chosen.server_port),
            numbers=chosen.numbers,
            interval=chosen.interval,
            patience=chosen.patience,
        )
    print(f"{len(heard)} of {chosen.numbers} came back", flush=True)
    return 0 if len(heard) == chosen.numbers else 1


if __name__ == "__main__":
    raise SystemExit(main())
