"""An Aeron Archive server that needs no JVM: Aeron's own clients can record, list, replay and delete streams with it."""

from __future__ import annotations

from mainstem.archive.server.access import (
    Accept,
    AcceptAll,
    Authenticator,
    Authorizer,
    Challenge,
    CredentialTable,
    Reject,
    allow_all,
)
from mainstem.archive.server.conductor import ArchiveStats
from mainstem.archive.server.server import ArchiveServer
from mainstem.archive.server.settings import ArchiveSettings, ThreadingMode

__all__ = [
    "Accept",
    "AcceptAll",
    "ArchiveServer",
    "ArchiveSettings",
    "ArchiveStats",
    "Authenticator",
    "Authorizer",
    "Challenge",
    "CredentialTable",
    "Reject",
    "ThreadingMode",
    "allow_all",
]
