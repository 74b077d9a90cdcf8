"""A game server on duologues: players send moves, the server sends the state of the world twenty times a second.

python examples/game_server.py
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING

from mainstem.duologue import Server, connect, serve
from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from mainstem.duologue import Duologue

ADDRESS, PORT = "127.0.0.1", 20400
WIDTH = HEIGHT = 10
TICK_S = 0.05
STEPS = {b"JOIN": (0, 0), b"NORTH": (0, -1), b"SOUTH": (0, 1), b"WEST": (-1, 0), b"EAST": (1, 0)}


class World:
    """The positions of all players. Each player is served in a thread of their own, so a lock guards the positions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, tuple[int, int]] = {}

    def serve(self, player: Duologue) -> None:
        """Serve one player until they leave."""
        word, _, rest = player.receive().partition(b" ")
        if word != b"JOIN":
            raise BadMessage(repr(word))
        name = rest.decode(errors="replace")[:32]
        try:
            self.move(name, b"JOIN")
            for message in player:
                self.move(name, message)
        finally:
            with self._lock:
                self._places.pop(name, None)

    def move(self, name: str, step: bytes) -> None:
        if step not in STEPS:
            raise BadMessage(repr(step))
        dx, dy = STEPS[step]
        with self._lock:
            x, y = self._places.get(name, (0, 0))
            # The server decides: a player who runs into the wall stays where they are.
            self._places[name] = (min(max(x + dx, 0), WIDTH - 1), min(max(y + dy, 0), HEIGHT - 1))

    def state(self) -> str:
        with self._lock:
            return json.dumps(self._places, sort_keys=True)


def tick(server: Server, world: World, ended: threading.Event) -> None:
    """Send the state to all players; a player who does not keep up does not delay the others."""
    while not ended.wait(TICK_S):
        server.broadcast(world.state())


def play(name: str, moves: list[str], expected: str, results: dict[str, bool]) -> None:
    """Join, move, and play until the world is as expected."""
    with connect(ADDRESS, PORT) as player:
        player.send(f"JOIN {name}")
        for move in moves:
            player.send(move)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            if player.receive(timeout=20).decode() == expected:
                results[name] = True
                player.send("NORTH")  # stays in the world until the other player has seen it too
                break
        while len(results) < 2 and time.monotonic() < deadline:
            player.receive(timeout=20)


def main() -> None:
    world, ended = World(), threading.Event()
    expected = json.dumps({"Ada": [3, 0], "Bob": [9, 0]}, sort_keys=True)
    results: dict[str, bool] = {}
    with serve(world.serve, ADDRESS, PORT, idle_timeout=None) as server:
        clock = threading.Thread(target=tick, args=(server, world, ended))
        clock.start()
        players = [
            threading.Thread(target=play, args=("Ada", ["EAST"] * 3, expected, results)),
            threading.Thread(target=play, args=("Bob", ["EAST"] * 20, expected, results)),  # runs into the wall
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
