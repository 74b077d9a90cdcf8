"""Bugs in the sender: windows, retransmissions, heartbeats, flow control."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

SEND_PATH = "_core/driver/send_path.py"
RETRANSMIT = "_core/driver/retransmit.py"

BUGS = (
    Bug(
        name="one NAK in 64 is ignored",
        harm="a subscriber waits for a repeated request, now and then",
        file=SEND_PATH,
        old="        if length > 0:\n            self.repeat(position, length)\n",
        new="        if length > 0 and counter_value(self.cells, SYSTEM_NAKS_RECEIVED) % 64 != 0:\n"
        "            self.repeat(position, length)\n",
        finder=Simulator(scenarios=("gaps", "unicast")),
    ),
    Bug(
        name="a retransmission is a frame short",
        harm="each gap of several frames needs two requests",
        file=SEND_PATH,
        old="        window: cython.longlong = length\n        sent: cython.longlong = 0\n",
        new="        window: cython.longlong = length - self.mtu if length > self.mtu else length\n"
        "        sent: cython.longlong = 0\n",
        finder=Simulator(scenarios=("unicast", "gaps")),
    ),
    Bug(
        name="a range is sent again for each of its NAKs",
        harm="loss makes a stream send everything several times",
        file=RETRANSMIT,
        old="            if self.position[i] <= position < self.position[i] + self.length[i]:\n                return 0\n",
        new="            if self.position[i] < position < self.position[i] + self.length[i]:\n                return 0\n",
        finder=Suite(selection=("tests/unit/_core/test_retransmit.py",)),
    ),
    Bug(
        name="the sender overruns the receiver's window by a datagram",
        harm="a slow receiver drops what it never allowed to be sent",
        file=SEND_PATH,
        old="            self.sender_limit - position,\n",
        new="            self.sender_limit - position + self.mtu,\n",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="the publisher's window is a quarter too long",
        harm="a publisher overwrites what is still being sent again",
        file=SEND_PATH,
        old="        limit = consumer + self.window_length\n        if self.allocator",
        new="        limit = consumer + self.window_length + self.window_length // 4\n        if self.allocator",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="the publisher's window is a quarter too short",
        harm="publishers meet back pressure sooner than they should",
        file=SEND_PATH,
        old="        limit = consumer + self.window_length\n        if self.allocator",
        new="        limit = consumer + self.window_length - self.window_length // 4\n        if self.allocator",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a heartbeat is never sent",
        harm="the loss of a stream's last messages is never noticed",
        file=SEND_PATH,
        old="                if now_ns >= self.heartbeat_due_ns:\n",
        new="                if now_ns >= NEVER_NS:\n",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="the end of a stream is not announced",
        harm="subscribers keep the image of a stream that has ended",
        file=SEND_PATH,
        old="            flags |= FLAG_EOS\n",
        new="            flags |= 0\n",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="the fastest receiver of a group sets the pace",
        harm="a slow member of the group loses messages for good",
        file="_core/driver/receivers.py",
        old="            if self.counts[i] and (not any_counts or self.edges[i] < result):\n",
        new="            if self.counts[i] and (not any_counts or self.edges[i] > result):\n",
        finder=Simulator(scenarios=("multicast", "mdc")),
    ),
)
