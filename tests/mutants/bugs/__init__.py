"""Every bug that can be planted, in the order of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutants.bugs import channels, endings, logs, receiver, recordings, sender, streams

if TYPE_CHECKING:
    from tests.mutants.bug import Bug

BUGS: tuple[Bug, ...] = (
    *sender.BUGS,
    *receiver.BUGS,
    *logs.BUGS,
    *streams.BUGS,
    *channels.BUGS,
    *recordings.BUGS,
    *endings.BUGS,
)
