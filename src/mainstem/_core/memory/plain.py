"""The primitives of atomics.pxd and waiting.pxd in plain Python, for the modules of this package when they run uncompiled.

They work for one thread and private memory only: two plain-Python processes that claim space on a shared tail lose claims,
and ``struct.pack_into`` zeroes before it writes, which a concurrent reader sees. So uncompiled code serves simulation,
debugging and line-by-line coverage, and refuses a mapped file (see ``buffer.AtomicBuffer``).
"""

from __future__ import annotations

import re
from struct import Struct
from time import monotonic_ns
from types import FunctionType
from typing import Any

from mainstem._core.layout import COUNTER_VALUE_LENGTH

_I16 = Struct("<H")
_I32 = Struct("<i")
_I64 = Struct("<q")


class Memory:
    """A writable byte view in place of a base pointer; offsets index it."""

    __slots__ = ("u8",)

    def __init__(self, view: Any) -> None:
        self.u8 = memoryview(view).cast("B")


class readonly:
    """A marker for an attribute of a compiled class that Python may read: ``count: readonly[cython.int]``."""


class public:
    """A marker for an attribute of a compiled class that Python may read and set: ``key: public[cython.int]``."""


_ARRAY = re.compile(r"cython\.(\w+)\[(\w+)\]")


def set_arrays(of: Any) -> None:
    """Set the attributes that a class declares as C arrays, such as ``length: cython.int[64]``: to zeros, or None for pointers."""
    for cls in type(of).__mro__:
        # The lengths are constants of the module that defines the class.
        functions = (each for each in vars(cls).values() if isinstance(each, FunctionType))
        names: dict[str, Any] = next((each.__globals__ for each in functions), {})
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            if match := _ARRAY.fullmatch(str(annotation)):
                setattr(of, name, [None if match[1].startswith("p") else 0] * eval(match[2], names))


def get8(b: Memory, o: int) -> int:
    return b.u8[o]


def get16(b: Memory, o: int) -> int:
    return int(_I16.unpack_from(b.u8, o)[0])


def get32(b: Memory, o: int) -> int:
    return int(_I32.unpack_from(b.u8, o)[0])


def get64(b: Memory, o: int) -> int:
    return int(_I64.unpack_from(b.u8, o)[0])


def put8(b: Memory, o: int, v: int) -> None:
    b.u8[o] = v


def put16(b: Memory, o: int, v: int) -> None:
    _I16.pack_into(b.u8, o, v & 0xFFFF)


def put32(b: Memory, o: int, v: int) -> None:
    _I32.pack_into(b.u8, o, ((v + 0x80000000) & 0xFFFFFFFF) - 0x80000000)


def put64(b: Memory, o: int, v: int) -> None:
    _I64.pack_into(b.u8, o, ((v + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63))


def be16(b: Memory, o: int) -> int:
    return int.from_bytes(b.u8[o : o + 2], "big")


def be32(b: Memory, o: int) -> int:
    return int.from_bytes(b.u8[o : o + 4], "big")


def le32(b: Memory, o: int) -> int:
    return int.from_bytes(b.u8[o : o + 4], "little")


ld32, ld64, st32, st64 = get32, get64, put32, put64
mark32, mark64 = put32, put64


def fadd64(b: Memory, o: int, v: int) -> int:
    old = get64(b, o)
    put64(b, o, old + v)
    return old


def add_to_counter(cells: Memory, counter_id: int, n: int) -> None:
    fadd64(cells, COUNTER_VALUE_LENGTH * counter_id, n)


def counter_value(cells: Memory, counter_id: int) -> int:
    return ld64(cells, COUNTER_VALUE_LENGTH * counter_id)


def cas32(b: Memory, o: int, e: int, v: int) -> bool:
    if get32(b, o) != e:
        return False
    put32(b, o, v)
    return True


def cas64(b: Memory, o: int, e: int, v: int) -> bool:
    if get64(b, o) != e:
        return False
    put64(b, o, v)
    return True


def fence_release() -> None:
    """Do nothing: with one thread there is nothing to order."""


def fence_acquire() -> None:
    """Do nothing: with one thread there is nothing to order."""


def prefetch(b: Memory, o: int) -> None:
    """Do nothing: there is no cache to hint to."""


def touch(b: Memory, o: int) -> None:
    """Do nothing: the memory is mapped already."""


def allocate_pages(b: Memory, o: int, n: int) -> int:  # noqa: ARG001 - as declared
    """Return 0: the memory is mapped already."""
    return 0


def prefetch_write(b: Memory, o: int) -> None:
    """Do nothing: there is no cache to hint to."""


def copy_bytes(d: Memory, o: int, s: Memory, so: int, n: int) -> None:
    d.u8[o : o + n] = s.u8[so : so + n]


def zero_out(b: Memory, o: int, n: int) -> None:
    b.u8[o : o + n] = bytes(n)


def zero_past_caches(b: Memory, o: int, n: int) -> None:
    zero_out(b, o, n)


def steady_ns() -> int:
    return monotonic_ns()


def pause_core() -> None:
    """Do nothing: with one thread there is nothing to wait for."""


def yield_core() -> None:
    """Do nothing: with one thread there is nothing to wait for."""


def open_arrivals() -> int:
    return -1


def add_arrivals(arrivals: int, fd: int) -> None:
    """Do nothing: there is no set, and nothing sleeps."""


def nap_or_arrival(arrivals: int, ns: int) -> bool:
    """Return at once, as if nothing arrived, because an uncompiled loop serves tests."""
    return False


def wrap_i32(v: int) -> int:
    return ((v + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def shift_left(v: int, n: int) -> int:
    return v << n


def difference(a: int, b: int) -> int:
    return a - b


def align_frame(n: int) -> int:
    return (n + 31) & ~31
