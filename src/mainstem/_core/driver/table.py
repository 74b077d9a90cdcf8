"""A table from (session id, stream id) to its path; there is one lookup per datagram."""

from __future__ import annotations

import cython

if not cython.compiled:
    from mainstem._core.memory.plain import *

from mainstem._core.memory.buffer import AtomicBuffer

FIRST_ROOM = 16


@cython.cclass
class PathTable:
    """Paths by (session id, stream id). Every datagram reads it; the same thread changes it.

    Open addressing with linear probing, at most half full. ``find`` returns an index into ``entries``, which are borrowed
    references to the objects in ``paths``, because the cycle runs without the GIL and cannot count references. Call a path in
    place, ``cython.cast(SendPath, table.entries[index]).work(now_ns)``; the index is valid until the table changes: the last entry
    takes the index of a removed one.
    """

    memory: AtomicBuffer
    entry_memory: AtomicBuffer
    base: cython.p_uchar
    entries: cython.pp_void
    room: cython.int
    shift: cython.int
    count: readonly[cython.int]
    paths: dict
    keys: list
    last_key: cython.longlong
    last_index: cython.int

    def __init__(self) -> None:
        self.paths = {}
        self._rebuild()

    def _rebuild(self) -> None:
        room: cython.int = FIRST_ROOM
        while room < 2 * len(self.paths):
            room = room * 2
        self.room = room
        self.shift = 65 - int(room).bit_length()
        self.memory = AtomicBuffer(bytearray(16 * room))
        self.base = self.memory.base
        self.count = 0
        self.keys = []
        self.last_index = -1
        self.last_key = 0
        self.entry_memory = AtomicBuffer(bytearray(8 * room))
        if cython.compiled:
            self.entries = cython.cast(cython.pp_void, self.entry_memory.base)
        else:
            self.entries = [None] * room
        for (session_id, stream_id), path in self.paths.items():
            self._enter(self.key(session_id, stream_id), path)

    def _enter(self, key: cython.longlong, path) -> None:
        slot: cython.longlong = self.slot_of(key)
        if get64(self.base, 16 * slot + 8) == 0:
            self.keys.append(key)
            self.count += 1
            put64(self.base, 16 * slot, key)
            put64(self.base, 16 * slot + 8, self.count)
        index: cython.longlong = get64(self.base, 16 * slot + 8) - 1
        self.entries[index] = cython.cast(cython.p_void, path) if cython.compiled else path

    def _leave(self, key: cython.longlong) -> None:
        slot: cython.longlong = self.slot_of(key)
        index: cython.longlong = get64(self.base, 16 * slot + 8) - 1
        self.count -= 1
        last_key: cython.longlong = self.keys.pop()
        if last_key != key:
            self.keys[index] = last_key
            self.entries[index] = self.entries[self.count]
            put64(self.base, 16 * self.slot_of(last_key) + 8, index + 1)
        # A lookup stops at an empty slot. So move back into the gap each key after it whose lookup begins at or before the gap.
        mask: cython.longlong = self.room - 1
        gap: cython.longlong = slot
        slot = (slot + 1) & mask
        while get64(self.base, 16 * slot + 8) != 0:
            key = get64(self.base, 16 * slot)
            if ((slot - self.home_of(key)) & mask) >= ((slot - gap) & mask):
                put64(self.base, 16 * gap, key)
                put64(self.base, 16 * gap + 8, get64(self.base, 16 * slot + 8))
                gap = slot
            slot = (slot + 1) & mask
        put64(self.base, 16 * gap + 8, 0)

    def key(self, session_id: cython.longlong, stream_id: cython.longlong) -> int:
        result: cython.longlong = shift_left(session_id, 32) | (stream_id & 0xFFFFFFFF)
        return result

    def __len__(self) -> int:
        return self.count

    def get(self, session_id: cython.longlong, stream_id: cython.longlong) -> object | None:
        return self.paths.get((session_id, stream_id))

    def put(self, session_id: cython.int, stream_id: cython.int, path: object) -> None:
        self.paths[session_id, stream_id] = path
        if 2 * len(self.paths) > self.room:
            self._rebuild()
        else:
            self.last_index = -1
            self._enter(self.key(session_id, stream_id), path)

    def remove(self, session_id: cython.int, stream_id: cython.int) -> object | None:
        path = self.paths.pop((session_id, stream_id), None)
        if path is not None:
            self.last_index = -1
            self._leave(self.key(session_id, stream_id))
        return path

    def home_of(self, key: cython.longlong) -> cython.longlong:
        """Return the slot at which the lookup of a key begins. Every bit of the key counts in the upper bits of the product."""
        hashed: cython.ulonglong
        if cython.compiled:
            hashed = cython.cast(cython.ulonglong, key) * cython.cast(cython.ulonglong, 0x9E3779B97F4A7C15)
        else:
            hashed = key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        slot: cython.longlong = hashed >> self.shift
        return slot

    def slot_of(self, key: cython.longlong) -> cython.longlong:
        """Return the slot of a key, or the empty one where its lookup ends."""
        slot: cython.longlong = self.home_of(key)
        while get64(self.base, 16 * slot + 8) != 0 and get64(self.base, 16 * slot) != key:
            slot = (slot + 1) & (self.room - 1)
        return slot

    def find(self, session_id: cython.int, stream_id: cython.int) -> cython.int:
        key: cython.longlong
        if cython.compiled:
            key = shift_left(session_id, 32) | cython.cast(cython.uint, stream_id)
        else:
            key = self.key(session_id, stream_id)
        if self.last_index < 0 or key != self.last_key:
            self.last_index = cython.cast(cython.int, get64(self.base, 16 * self.slot_of(key) + 8)) - 1
            self.last_key = key
        return self.last_index
