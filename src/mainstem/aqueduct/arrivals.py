"""The first packets of connections at a server: which are answered, and how.

Nothing is kept of a packet that the library cannot decrypt, and no place is taken before an address is proven (`admission`).
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from mainstem.aqueduct.quic.retry_tokens import RetryTokens
from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from mainstem.aqueduct.admission import Admission
    from mainstem.aqueduct.quic.adapter import Address, PacketHeader, QuicAdapter, ServerContext
    from mainstem.aqueduct.runner import Runner

SMALLEST_FIRST = 1200
"""Bytes of a datagram that may begin a connection (RFC 9000, 14.1): a smaller one gets no response, which could be larger."""


class Arrivals:
    """Answers the packets that belong to no connection."""

    def __init__(self, context: ServerContext, admission: Admission[Runner], *, always_retry: bool) -> None:
        self._context = context
        self._admission = admission
        self._always_retry = always_retry
        self._tokens = RetryTokens()

    def response(self, data: bytes, header: PacketHeader, address: Address, now: float) -> bytes | None:
        """The datagram that answers a packet and keeps nothing of it: a version negotiation, or a Retry."""
        if len(data) < SMALLEST_FIRST:
            return None
        negotiation = self._context.negotiate(header)
        if negotiation is not None or not header.is_initial:
            return negotiation
        if self._original(header, address, now) is not None:
            return None
        if not (self._always_retry or self._admission.must_prove(now)):
            return None
        retried = urandom(CID_LENGTH)
        token = self._tokens.make(address, header.destination_cid, retried, now)
        return self._context.retry(header, retried, token)

    def begin(self, data: bytes, header: PacketHeader, address: Address, now: float) -> tuple[QuicAdapter, bool] | None:
        """The connection that a first packet begins, and whether its address is proven; None where it begins none."""
        if len(data) < SMALLEST_FIRST or not header.is_initial:
            return None
        original = self._original(header, address, now)
        if original is None:
            self._admission.try_unproven()
        adapter = self._context.accept(header, original)
        try:
            adapter.receive([data], address, now)
        except adapter.library_errors:
            adapter.discard()
            return None
        if not adapter.has_begun:
            adapter.discard()
            return None
        return adapter, original is not None

    def _original(self, header: PacketHeader, address: Address, now: float) -> bytes | None:
        """The connection id that a client began with, from a valid token; another token is as good as none."""
        return self._tokens.original(header.token, address, header.destination_cid, now) if header.token else None
