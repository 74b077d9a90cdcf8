"""Bugs in the conductor: lifecycles of streams, subscribers and sessions."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

CONDUCTOR = "aeron/driver/conductor"

BUGS = (
    Bug(
        name="a stream is unblocked too soon",
        harm="the message of a slow publisher becomes padding while it is written",
        file=f"{CONDUCTOR}/life_cycle.py",
        old="        if now_ns - self._since_ns < self._timeout_ns:\n            return False\n        self._since_ns = now_ns\n",
        new="        if now_ns - self._since_ns < self._timeout_ns // 2:\n            return False\n"
        "        self._since_ns = now_ns\n",
        finder=Simulator(scenarios=("claims",)),
    ),
    Bug(
        name="an untethered subscriber holds the stream",
        harm="a subscriber that need not keep up stops all others",
        file=f"{CONDUCTOR}/life_cycle.py",
        old="            elif now_ns - position.since_ns >= timeouts.window_limit_ns:\n",
        new="            elif now_ns - position.since_ns < 0:\n",
        finder=Simulator(scenarios=("untethered",)),
    ),
    Bug(
        name="a subscriber that rests comes back to where it stopped",
        harm="a subscriber that was cut off reads what is overwritten",
        file=f"{CONDUCTOR}/life_cycle.py",
        old="            position.cell.set_release(source.join_position)\n",
        new="            position.cell.set_release(position.cell.get_acquire())\n",
        finder=Simulator(scenarios=("untethered", "spies")),
    ),
    Bug(
        name="a session id in use is handed out",
        harm="two publications of one stream become one image",
        file=f"{CONDUCTOR}/session_ids.py",
        old="            if candidate not in in_use:\n",
        new="            if candidate not in in_use or True:\n",
        finder=Suite(selection=("tests/unit/aeron/driver/conductor/test_session_ids.py",)),
    ),
)
