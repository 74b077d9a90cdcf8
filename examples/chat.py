"""A chat room on duologues: everyone sees every message. It shows that `mainstem.duologue` carries any protocol, not only an echo.

    python examples/chat.py serve 127.0.0.1
    python examples/chat.py join 127.0.0.1 Ada

The protocol: `JOIN <name>` once, then `SAY <text>`; the server sends `<name> joined`, `<name>: <text>` and `<name> left` to
everybody. A first message other than JOIN, a second JOIN or an unknown word is a bad message, and ends the duologue.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
from typing import TYPE_CHECKING

from mainstem import ClosedError, MainstemError
from mainstem.duologue import connect, serve
from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.duologue import Duologue

MAX_NAME = 32


class Room:
    """Everyone who has joined. Each member is served in a thread of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[Duologue, str] = {}

    def serve(self, member: Duologue) -> None:
        """Serve one member until they leave."""
        word, name = words(member.receive())
        if word != "JOIN" or not 0 < len(name) <= MAX_NAME:
            raise BadMessage(word)
        with self._lock:
            self._members[member] = name
        try:
            self.tell(f"{name} joined")
            for message in member:
                word, text = words(message)
                if word != "SAY":
                    raise BadMessage(word)
                self.tell(f"{name}: {text}")
        finally:
            with self._lock:
                del self._members[member]
            self.tell(f"{name} left")

    def tell(self, text: str) -> None:
        """Send a message to everybody. Members who do not keep up miss it and do not delay the others."""
        with self._lock:
            for member, name in self._members.items():
                try:
                    if not member.try_send(text):
                        print(f"{name} misses {text!r}", file=sys.stderr)
                except MainstemError as error:
                    print(f"{name} misses {text!r}: {error}", file=sys.stderr)


def words(message: bytes) -> tuple[str, str]:
    """Split a message into its first word and the rest."""
    word, _, rest = message.decode(errors="replace").partition(" ")
    return word, rest


def host_room(address: str, port: int, timeout: float) -> None:
    with serve(
        Room().serve,
        address,
        port,
        join_timeout=timeout,
        idle_timeout=None,  # in a chat, listening is enough
    ) as server:
        print(f"the room is open on {address}:{port}; Ctrl-C closes it", flush=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            return


def join(address: str, port: int, name: str, timeout: float) -> None:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    done = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.rstrip("\n"))
        done.set()

    with connect(address, port, timeout=timeout) as client:
        client.send(f"JOIN {name}")
        threading.Thread(target=read, daemon=True).start()
        try:
            while not (done.is_set() and lines.empty()):
                while not lines.empty():
                    client.send(f"SAY {lines.get()}")
                while (heard := client.poll()) is not None:
                    print(heard.decode(), flush=True)
                done.wait(0.01)
        except ClosedError as error:
            print(error, file=sys.stderr)
        except KeyboardInterrupt:
            return


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A chat room on duologues.")
    parser.add_argument("role", choices=("serve", "join"))
    parser.add_argument("address")
    parser.add_argument("name", nargs="?", default="somebody")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds that each step of joining may take")
    chosen = parser.parse_args(arguments)
    if chosen.role == "serve":
        host_room(chosen.address, chosen.port, chosen.timeout)
    else:
        join(chosen.address, chosen.port, chosen.name, chosen.timeout)


if __name__ == "__main__":
    main()
