"""Bugs of the log buffers: appending, reading, cleaning, and the counters beside them."""

from __future__ import annotations

from tests.canary.bug import Bug, Suite

APPEND = "_core/log/append.py"

BUGS = (
    Bug(
        name="a frame's length is stored before its payload",
        harm="a subscriber reads a message that is not written yet",
        file=APPEND,
        old="            copy_bytes(base, p + DATA_HEADER_LENGTH, source, 0, length)\n"
        "            # The release that makes header and payload visible: nothing above may sink below it.\n"
        "            st32(base, p, cython.cast(cython.int, length + DATA_HEADER_LENGTH))\n",
        new="            st32(base, p, cython.cast(cython.int, length + DATA_HEADER_LENGTH))\n"
        "            copy_bytes(base, p + DATA_HEADER_LENGTH, source, 0, length)\n",
        finder=Suite(selection=("tests/unit/_core/test_store_order.py",)),
    ),
)
