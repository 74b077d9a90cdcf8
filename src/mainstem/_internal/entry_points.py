"""What lower packages use of higher ones, by name. It is imported on first use.

Imports point down. Two calls of lower packages are built on higher ones, because users look for them there. They get the
implementation from this table, and know only its protocol.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

ENTRY_POINTS = {
    # Of the location's URL and the store's options, for `recording.open_archives`.
    "aeron-archive": "mainstem.archive.remote_archive:RemoteArchive",
    # For `add_persistent_subscription`, as `RecordedStream` of ``aeron.client.persistent_subscription``.
    "persistent-stream": "mainstem.recording.persistent.stream:PersistentStream",
}


def entry_point(name: str) -> Any:
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    return getattr(import_module(module), attribute)
