"""The archive's own counters."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError, MainstemError

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client import Aeron
    from mainstem.aeron.client.operation import Operation

MAX_LABEL_LENGTH = 380
ERRORS, CONTROL_SESSIONS, RECORDING_SESSIONS, REPLAY_SESSIONS = 101, 102, 111, 112
_LABELS = {
    ERRORS: "Archive Errors",
    CONTROL_SESSIONS: "Archive Control Sessions",
    RECORDING_SESSIONS: "Archive Recording Sessions",
    REPLAY_SESSIONS: "Archive Replay Sessions",
}
_SESSION_KEY = struct.Struct("<qq")


def session_counter(archive_id: int, session_id: int, client_info: str, image: Any) -> tuple[bytes, str]:
    """Return key and label of a control session's counter."""
    end = f" sourceIdentity={image.source_identity} sessionId={image.session_id} - archiveId={archive_id}"
    label = f"control-session: {client_info}"
    return _SESSION_KEY.pack(archive_id, session_id), label[: MAX_LABEL_LENGTH - len(end)] + end


def check_unused(counters: CountersReader, archive_id: int) -> None:
    """Raise ConfigurationError if an archive with that id uses the driver: clients could not tell the two apart."""
    key = struct.pack("<q", archive_id)
    for counter_id in counters:
        if counters.type_id(counter_id) == ERRORS and counters.key(counter_id).startswith(key):
            raise ConfigurationError(f"id={archive_id}: another archive of this driver has that id; choose another one")


class ArchiveCounters:
    """How many requests were refused, and how many control sessions, recordings and replays there are."""

    def __init__(self, aeron: Aeron, archive_id: int) -> None:
        key = struct.pack("<q", archive_id)
        self._adding: dict[int, Operation[Any]] = {
            type_id: aeron.async_add_counter(type_id, f"{label} - archiveId={archive_id}", key=key)
            for type_id, label in _LABELS.items()
        }
        self._counters: dict[int, Any] = {}
        self._shown: tuple[int, ...] = ()

    def update(self, errors: int, sessions: int, recordings: int, replays: int) -> None:
        """Store the present numbers."""
        for type_id, operation in list(self._adding.items()):
            counter = operation.poll()
            if counter is not None:
                self._counters[type_id] = counter
                del self._adding[type_id]
                self._shown = ()
        shown = (errors, sessions, recordings, replays)
        if shown != self._shown:
            self._shown = shown
            for type_id, value in zip(_LABELS, shown, strict=True):
                if type_id in self._counters:
                    self._counters[type_id].set_release(value)

    def close(self) -> None:
        """Free them."""
        with suppress(MainstemError):
            for operation in self._adding.values():
                operation.cancel()
            for counter in self._counters.values():
                counter.close()
