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
    place, ``cython.cast(SendPath, table.entries[index]).work(now_ns)``; the index is valid until the table changes. Removal
    rebuilds the table: it is rare, so this needs no tombstones.
    """

    memory: AtomicBuffer
    entry_memory: AtomicBuffer
    base: cython.p_uchar
    entries: cython.pp_void
    room: cython.int
    count: readonly[cython.int]
    paths: dict
    last_key: cython.longlong
    last_index: cython.int

    def __init__(self) -> None:
        self.paths = {}
        self.room = FIRST_ROOM
        self.count = 0
        self._rebuild()

    def _rebuild(self) -> None:
        room: cython.int = FIRST_ROOM
        while room < 2 * len(self.paths):
            room = room * 2
        self.room = room
        self.memory = AtomicBuffer(bytearray(16 * room))
        self.base = self.memory.base
        self.count = len(self.paths)
        self.last_index = -1
        self.last_key = 0
        self.entry_memory = AtomicBuffer(bytearray(8 * room))
        if cython.compiled:
            self.entries = cython.cast(cython.pp_void, self.entry_memory.base)
        else:
            self.entries = [None] * room
        for index, ((session_id, stream_id), path) in enumerate(self.paths.items()):
            self._enter(session_id, stream_id, index, path)

    def _enter(self, session_id, stream_id, index: cython.int, path) -> None:
        key = self.key(session_id, stream_id)
        slot: cython.longlong = self.slot_of(key)
        put64(self.base, 16 * slot, key)
        put64(self.base, 16 * slot + 8, index + 1)
        self.entries[index] = cython.cast(cython.p_void, path) if cython.compiled else path

    def key(self, session_id: cython.longlong, stream_id: cython.longlong) -> int:
        result: cython.longlong = shift_left(session_id, 32) | (stream_id & 0xFFFFFFFF)
        return result

    def __len__(self) -> int:
        return self.count

    def get(self, session_id: cython.longlong, stream_id: cython.longlong) -> object | None:
        return self.paths.get((session_id, stream_id))

    def values(self) -> list[object]:
        return list(self.paths.values())

    def put(self, session_id: cython.int, stream_id: cython.int, path: object) -> None:
        known = (session_id, stream_id) in self.paths
        self.paths[session_id, stream_id] = path
        if known or 2 * len(self.paths) > self.room:
            self._rebuild()
        else:
            self.last_index = -1
            self._enter(session_id, stream_id, len(self.paths) - 1, path)
            self.count = len(self.paths)

    def remove(self, session_id: cython.int, stream_id: cython.int) -> object | None:
        path = self.paths.pop((session_id, stream_id), None)
        self._rebuild()
        return path

    def slot_of(self, key: cython.longlong) -> cython.longlong:
        hashed: cython.ulonglong
        slot: cython.longlong
        if cython.compiled:
            hashed = cython.cast(cython.ulonglong, key) * cython.cast(cython.ulonglong, 0x9E3779B97F4A7C15)
            hashed ^= hashed >> 32
            slot = cython.cast(cython.longlong, hashed & cython.cast(cython.ulonglong, self.room - 1))
        else:
            slot = hash(key) & (self.room - 1)
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
