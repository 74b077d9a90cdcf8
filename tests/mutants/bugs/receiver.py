"""Bugs in the receiver: status messages, requests for lost data, validation of received data."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

RECEIVE_PATH = "_core/driver/receive_path.py"
WINDOW = "        put32(self.frame, SM_RECEIVER_WINDOW_OFFSET, cython.cast(cython.int, window))\n"

BUGS = (
    Bug(
        name="a receiver offers a quarter more than its window",
        harm="a sender sends what the receiver has no room for",
        file=RECEIVE_PATH,
        old=WINDOW,
        new=WINDOW.replace("window))", "window + window // 4))"),
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a receiver offers a quarter less than its window",
        harm="a stream over a high-latency link is a quarter slower than its buffers allow",
        file=RECEIVE_PATH,
        old=WINDOW,
        new=WINDOW.replace("window))", "window - window // 4))"),
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a status message's position is a frame too high",
        harm="a sender takes a frame for consumed that no subscriber has read",
        file=RECEIVE_PATH,
        old="            cython.cast(cython.int, self.scheduled_position & (self.term_length - 1)),\n"
        "        )\n        put32(self.frame, SM_RECEIVER_WINDOW_OFFSET",
        new="            cython.cast(cython.int, (self.scheduled_position + FRAME_ALIGNMENT) & (self.term_length - 1)),\n"
        "        )\n        put32(self.frame, SM_RECEIVER_WINDOW_OFFSET",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a status message is sent for consumption only",
        harm="a quiet subscriber is taken for gone",
        file=RECEIVE_PATH,
        old="        if self.schedule_status() or (reminders and now_ns >= self.status_due_ns):\n",
        new="        if self.schedule_status() or (self.status_messages_sent == 0 and now_ns >= self.status_due_ns):\n",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a repeated datagram is inserted again",
        harm="a message changes while a subscriber reads it",
        file="_core/log/term.py",
        old="    if ld64(base, at) != 0:\n        # A repeat, or overlapping data",
        new="    if ld64(base, at) == -1:\n        # A repeat, or overlapping data",
        finder=Suite(selection=("tests/unit/_core/test_term.py",)),
    ),
    Bug(
        name="a datagram's frames may run over the term",
        harm="a malformed datagram overwrites the next term",
        file="_core/driver/frame_checks.py",
        old="            or first + done + align_frame(frame) > term_length\n",
        new="            or first + done > term_length\n",
        finder=Suite(selection=("tests/unit/aeron/protocol/test_compiled_agrees.py",)),
    ),
    Bug(
        name="sessions that ended share a table with forged ones",
        harm="after a thousand streams ended, the next one comes back as a new image, even with rejoin=false",
        file="aeron/driver/receiver/data_packet_dispatcher.py",
        old="(self._cool_downs, MAX_COOL_DOWNS) if ended",
        new="(self._sessions, MAX_SESSIONS) if ended",
        finder=Suite(selection=("tests/unit/aeron/driver/receiver/test_data_packet_dispatcher.py",)),
    ),
    Bug(
        name="a driver unmaps its files while a thread is stuck",
        harm="the process crashes when the name server responds",
        file="aeron/driver/threads.py",
        old="        if running:\n            # Its next",
        new="        if running and core is None:\n            # Its next",
        finder=Suite(selection=("tests/unit/aeron/driver/test_threads.py",)),
    ),
)
