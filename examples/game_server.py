"""A game server on duologues: players send moves, the server sends the state of the world twenty times a second.

python examples/game_server.py
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from mainstem.duologue import Handler, Server, connect, serve
from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from mainstem.duologue import Duologue

ADDRESS, PORT, CONTROL, FIRST = "127.0.0.1", 20400, 20401, 20410
WIDTH = HEIGHT = 10
TICK_S = 0.05
STEPS = {b"NORTH": (0, -1), b"SOUTH": (0, 1), b"WEST": (-1, 0), b"EAST": (1, 0)}


class World(Handler):
    """Where everyone is. All of it runs in the server's one thread, so it needs no lock."""

    def __init__(self) -> None:
        self.places: dict[Duologue, tuple[str, int, int]] = {}

    def on_message(self, duologue: Duologue, message: bytes) -> None:
        word, _, rest = message.partition(b" ")
        if word == b"JOIN" and duologue not in self.places:
            self.places[duologue] = (rest.decode(errors="replace")[:32], 0, 0)
        elif message in STEPS and duologue in self.places:
            name, x, y = self.places[duologue]
            dx, dy = STEPS[message]
            # The server decides: a player who runs against the wall stays where they are.
            self.places[duologue] = (name, min(max(x + dx, 0), WIDTH - 1), min(max(y + dy, 0), HEIGHT - 1))
        else:
            raise BadMessage(repr(message))

    def on_close(self, duologue: Duologue, reason: str) -> None:  # noqa: ARG002
        self.places.pop(duologue, None)

    def state(self) -> str:
        return json.dumps({name: [x, y] for name, x, y in self.places.values()}, sort_keys=True)


def tick(server: Server, world: World, ended: threading.Event) -> None:
    """Sends the state to all, from the server's thread; a player who does not keep up holds up no other."""
    while not ended.wait(TICK_S):
        server.call(lambda core: core.broadcast(world.state()))


def play(name: str, moves: list[str], expected: str, results: dict[str, bool]) -> None:
    """Joins, moves, and plays until the world is as expected."""
    with connect(ADDRESS, initial_port=PORT, initial_control_port=CONTROL) as player:
        player.send(f"JOIN {name}")
        for move in moves:
            player.send(move)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            if player.receive(timeout=20).decode() == expected:
                results[name] = True
                player.send("NORTH")  # stays in the world until the other has seen it, too
                break
        while len(results) < 2 and time.monotonic() < deadline:
            player.receive(timeout=20)


def main() -> None:
    world, ended = World(), threading.Event()
    expected = json.dumps({"Ada": [3, 0], "Bob": [9, 0]}, sort_keys=True)
    results: dict[str, bool] = {}
    with serve(
        world, address=ADDRESS, initial_port=PORT, initial_control_port=CONTROL, base_port=FIRST, idle_timeout=None
    ) as server:
        clock = threading.Thread(target=tick, args=(server, world, ended))
        clock.start()
        players = [
            threading.Thread(target=play, args=("Ada", ["EAST"] * 3, expected, results)),
            threading.Thread(target=play, args=("Bob", ["EAST"] * 20, expected, results)),  # eleven of them at the wall
        ]
        for player in players:
            player.start()
        for player in players:
            player.join()
        ended.set()
        clock.join()
    print(f"both see {expected}: {results == {'Ada': True, 'Bob': True}}")


if __name__ == "__main__":
    main()
