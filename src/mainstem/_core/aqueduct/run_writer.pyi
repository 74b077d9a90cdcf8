# Written from run_writer.py by tools/write_core_stubs.py: edit that file, then run the tool.
from collections.abc import Callable
from typing import Any

class RunReader:
    """Takes runs of plain messages out of a stream's bytes.

    ``position``, ``count`` and ``size`` are those of the last run: where it ended, how many messages it had, and the bytes of
    their payloads.
    """

    position: int
    count: int
    size: int
    channel: int
    number: int
    def __init__(self) -> None: ...
    def whole(self, data: bytes, limit: int) -> bytes | None:
        """The payload, if ``data`` is one plain message of at most ``limit`` bytes and nothing else.

        ``channel`` and ``number`` are the message's.
        """
    def gather(self, items: list[bytes], start: int, count: int, limit: int) -> list[bytes]:
        """The payloads of at most ``count`` plain messages from ``items[start]`` on.

        Those that are alone in their items and follow one another in the same channel. ``channel``, ``number`` (of the first),
        ``count`` and ``size`` are theirs.
        """
    def read(self, data: bytes, position: int, prefix: bytes, number: int, count: int, limit: int) -> list[bytes]:
        """The payloads of at most ``count`` plain messages at ``position``.

        Those that begin with ``prefix`` (type and channel), are numbered from ``number`` on, carry no attachments, have at most
        ``limit`` bytes and are all there.
        """

class MessageWriter:
    """What the ordered messages of a connection are encoded into until the transport takes them.

    It holds the bytes of one stream at a time. ``wake`` is called when the first message is put into it; ``allowance`` is
    how many more it takes before the caller must have sent what is there (`renew`).
    """

    wake: Callable[[], None] | None
    allowance: int
    stream_id: int
    used: int
    opening: bytes
    stream_room: int
    datagram_room: int
    max_datagram: int
    def __init__(self) -> None: ...
    def take(self) -> tuple[int, list[bytes]]:
        """The stream and its bytes, in pieces; it is empty afterwards."""
    def take_alone(self) -> tuple[list[bytes], list[bytes]]:
        """The messages that go out alone: on a stream each, and in a datagram each."""
    @property
    def has_alone(self) -> bool:
        """`take_alone` has something."""
    @property
    def waiting_singles(self) -> int:
        """Messages that wait for a stream each."""
    def renew(self) -> None:
        """What was here is on its way: as many messages again."""

class Ledger:
    """One sender's reliable messages that are not acknowledged, and the short way for those that are plain.

    ``first`` is the lowest number not acknowledged, ``next`` the next to be given, ``count`` and ``size`` how many are
    outstanding and their bytes. ``prefix`` is what each Message frame begins with, ``largest`` the largest payload.
    """

    first: int
    next: int
    count: int
    size: int
    max_messages: int
    max_bytes: int
    stream_id: int
    is_open: bool
    def __init__(
        self, writer: MessageWriter, prefix: bytes, max_messages: int, max_bytes: int, largest: int
    ) -> None: ...
    def open(self, stream_id: int) -> None:
        """Nothing stands in the way of plain messages on that stream: `put` takes them."""
    def shut(self) -> None:
        """Something does: `put` takes none until the next `open`."""
    @property
    def is_spent(self) -> bool:
        """The connection's allowance of messages is used up until its output is carried off."""
    def put(self, message: object) -> bool:
        """Send one plain message; False where ``mainstem.aqueduct`` has to decide, which may still take it."""
    def add(self, size: int, entry: Any) -> int:
        """Note a message that was sent the careful way, and what hangs on it (or None); returns its number."""
    def acknowledge(self, start: int, stop: int) -> list[Any]:
        """Numbers ``start`` to ``stop`` were acknowledged; returns what hung on them.

        Raises ValueError with the number where one was acknowledged before, IndexError where they were never sent.
        """
    def settle(self) -> None:
        """Move ``first`` on, after acknowledgements."""
    def clear(self) -> list[Any]:
        """Forget what is outstanding; returns what hung on it, in the order of the numbers."""

class QuickSender:
    """The short way for the plain messages of one sender that do not travel in order: nothing attached, no tag.

    It takes messages while ``sender.state`` is ``open_state`` and ``sender.pending`` is empty, of unreliable ones at most
    ``bound`` that nothing is known of. ``declare`` is called with the core and the sender where the sender is not in
    ``core.declare_list``.
    """
    def __init__(
        self,
        ledger: Ledger,
        core: Any,
        sender: Any,
        open_state: object,
        *,
        unreliable: bool,
        bound: int,
        declare: Callable[[Any, Any], None],
    ) -> None: ...
    @property
    def is_spent(self) -> bool:
        """The connection's allowance of messages is used up until its output is carried off."""
    def put(self, message: object) -> bool:
        """Send one plain message; False where ``mainstem.aqueduct`` has to decide, which may still take it."""
