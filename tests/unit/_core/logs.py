"""A log in memory with its counters, publishers and readers, compiled or not."""

from __future__ import annotations

from typing import Any

from tests.unit._core.uncompiled import load

import mainstem._core.log.append
import mainstem._core.log.assemble
import mainstem._core.log.fragment
import mainstem._core.log.read
import mainstem._core.memory.buffer
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType

LIMIT, POSITION = 1, 2
T = 65536
LAST = (1 << 31) - 1


class Core:
    """One set of modules that belong together."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "compiled":
            self.append: Any = mainstem._core.log.append
            self.read: Any = mainstem._core.log.read
            self.assemble: Any = mainstem._core.log.assemble
            self.buffer: Any = mainstem._core.memory.buffer
            self.fragment: Any = mainstem._core.log.fragment
        else:
            for module in ("memory.buffer", "log.fragment", "log.assemble", "log.append", "log.read"):
                setattr(self, module.partition(".")[2], load(module))

    def memory(self, length: int) -> Any:
        return self.buffer.AtomicBuffer(bytearray(length))


COMPILED = Core("compiled")
UNCOMPILED = Core("uncompiled")


class Log:
    """One stream: terms of 64 KiB that start two terms before the term ids wrap."""

    def __init__(
        self, core: Core = COMPILED, *, initial: int = LAST - 1, mtu: int = 1408, connected: bool = True, **more: Any
    ) -> None:
        parameters = LogParameters(
            correlation_id=9,
            session_id=-7,
            stream_id=1001,
            initial_term_id=initial,
            term_length=T,
            mtu=mtu,
            log_type=LogType.CONCURRENT_PUBLICATION,
            **more,
        )
        self.core = core
        self.memory = core.memory(parameters.log_length)
        self.buffers = LogBuffers.create(self.memory, parameters)
        self.counters = core.memory(1024)
        self.buffers.is_connected = connected
        self.limit = 1 << 60
        self.counters.put_i64(POSITION * 128, parameters.start_position)

    @property
    def limit(self) -> int:
        return int(self.counters.get_i64(LIMIT * 128))

    @limit.setter
    def limit(self, value: int) -> None:
        self.counters.put_i64(LIMIT * 128, value)

    @property
    def position(self) -> int:
        """Return the subscriber's position."""
        return int(self.counters.get_i64(POSITION * 128))

    def concurrent(self) -> Any:
        return self.core.append.ConcurrentAppender(self.memory, self.counters, LIMIT)

    def exclusive(self) -> Any:
        return self.core.append.ExclusiveAppender(self.memory, self.counters, LIMIT)

    def image(self) -> Any:
        return self.core.read.ImageReader(self.memory, self.counters, POSITION)

    def clean(self, up_to: int, already: int) -> None:
        """Zero the consumed range, as a driver does."""
        while already < up_to:
            offset = already % T
            part = min(up_to - already, T - offset)
            self.memory.zero((already // T) % 3 * T + offset, part)
            already += part

    def frames(self, partition: int = 0, offset: int = 0) -> list[tuple[int, int, int, int, bytes]]:
        """Return (offset, length, flags, type, payload) of each committed frame from ``offset`` on."""
        found = []
        while offset < T:
            at = partition * T + offset
            length = self.memory.get_i32(at)
            if length <= 0:
                break
            kind = self.memory.get_u16(at + 6)
            payload = self.memory.get_bytes(at + 32, length - 32) if kind else b""
            found.append((offset, length, self.memory.get_u8(at + 5), kind, payload))
            offset += (length + 31) & ~31
        return found
