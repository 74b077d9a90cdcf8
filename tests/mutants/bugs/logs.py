"""Bugs in log buffers: appending, reading, cleaning, and the related counters."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

APPEND = "_core/log/append.py"

BUGS = (
    Bug(
        name="the padding at a term's end is forgotten",
        harm="a stream stops at the end of a term",
        file=APPEND,
        old="        if left > 0:\n            self.put_pad(",
        new="        if left > self.term_length:\n            self.put_pad(",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="the term id is wrong after it has wrapped",
        harm="a stream that outlives 2**31 term ids stops",
        file=APPEND,
        old="        put32(base, p + FRAME_TERM_ID_OFFSET, wrap_i32((begin >> self.bits) + self.initial_term_id))\n",
        new="        put32(base, p + FRAME_TERM_ID_OFFSET, min((begin >> self.bits) + self.initial_term_id, 0x7FFFFFFF))\n",
        finder=Simulator(scenarios=("unicast",)),
    ),
    Bug(
        name="a frame's length is stored before its payload",
        harm="a subscriber reads a message that is not written yet",
        file=APPEND,
        old="            copy_bytes(base, p + DATA_HEADER_LENGTH, source, 0, length)\n"
        "            # The release that makes header and payload visible: no store above may move below it.\n"
        "            st32(base, p, cython.cast(cython.int, length + DATA_HEADER_LENGTH))\n",
        new="            st32(base, p, cython.cast(cython.int, length + DATA_HEADER_LENGTH))\n"
        "            copy_bytes(base, p + DATA_HEADER_LENGTH, source, 0, length)\n",
        finder=Suite(selection=("tests/unit/_core/test_store_order.py",)),
    ),
    Bug(
        name="cleaning ends a frame short",
        harm="an old frame shows up three terms later",
        file="_core/log/term.py",
        old="    clean_bytes(base, at, length, is_far and term_length >= FAR_TERM_LENGTH)\n",
        new="    clean_bytes(base, at, length - FRAME_ALIGNMENT if length > FRAME_ALIGNMENT else length, False)\n",
        finder=Suite(selection=("tests/unit/_core/test_paths.py",)),
    ),
    Bug(
        name="a frame's end is not compared with the term's",
        harm="a corrupt length makes a subscriber read outside of the log",
        file="_core/log/read.py",
        old="                p += align_frame(length)\n                if p > term_end:\n",
        new="                p += align_frame(length)\n                if p > term_end + self.term_length:\n",
        finder=Suite(selection=("tests/unit/_core/test_corrupt_memory.py",)),
    ),
    Bug(
        name="the fastest reader of an IPC stream sets the limit",
        harm="a slow reader's messages are overwritten before it reads them",
        file="_core/driver/ipc_path.py",
        old="        consumed = min(self.subscribers.lowest(self.consumer_position),",
        new="        consumed = min(self.subscribers.highest(self.consumer_position),",
        finder=Simulator(scenarios=("ipc",)),
    ),
    Bug(
        name="a counter is freed for use too early",
        harm="a client reads another stream's position",
        file="_core/memory/counters.py",
        old="now_ms + self.reuse_delay_ms)\n",
        new="now_ms)\n",
        finder=Suite(selection=("tests/unit/_core/test_counters.py",)),
    ),
    Bug(
        name="a guarded mapping's place is read while it changes",
        harm="a file that is truncated while another one is opened loses zeros into memory that belongs to something else",
        file="_core/memory/bus_guard.py",
        old="    if ld64(base, place) != generation or address < begin or address >= end:\n",
        new="    if address < begin or address >= end:\n",
        finder=Suite(selection=("tests/models/test_models.py",)),
    ),
)
