"""Authentication of control sessions, with optional challenges, and authorization of each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Accept:
    """The client has authenticated.

    Attributes:
        principal: Identifies the client to the authorizer.
    """

    principal: bytes = b""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client must answer a challenge first.

    Attributes:
        data: The challenge to send to the client.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """The client's credentials are rejected."""


class Authenticator(Protocol):
    """Decides who may open a control session.

    `authenticate` must not block. If it returns None, the archive calls it again.
    """

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject | None:
        """Decide whether to accept a client.

        Args:
            credentials: The credentials from the client's connect request or its response to a challenge.
            challenge: The challenge that the client responds to; None for a connect request.

        Returns:
            The decision; None if there is none yet. A response to a challenge cannot be challenged again.
        """
        ...


class Authorizer(Protocol):
    """Decides which requests a client may make."""

    def __call__(self, request: str, principal: bytes, /) -> bool:
        """Return whether the archive carries out a request.

        Args:
            request: The name of the message, such as ``TruncateRecordingRequest``.
            principal: The principal that the authenticator assigned to the client.
        """
        ...


class AcceptAll(Authenticator):
    """Accepts every client and ignores credentials."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept:
        del credentials, challenge
        return Accept()


class CredentialTable(Authenticator):
    """Accepts the clients whose credentials are in a table.

    Args:
        principals: Maps credentials to principals.

    Example:
        >>> authenticator = CredentialTable({b"ops:secret": b"ops"})
    """

    def __init__(self, principals: Mapping[bytes, bytes]) -> None:
        self._principals = dict(principals)

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Reject:
        del challenge
        principal = self._principals.get(credentials)
        return Reject() if principal is None else Accept(principal)


def allow_all(request: str, principal: bytes, /) -> bool:
    """Allow every request of every client. Return True, whatever ``request`` and ``principal`` are."""
    del request, principal
    return True
