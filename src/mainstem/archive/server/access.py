"""Who may use an archive: authentication of sessions, with challenges, and authorization of each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Accept:
    """The client is who it says.

    Attributes:
        principal: Identifies it to the authorizer.
    """

    principal: bytes = b""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client must answer first.

    Attributes:
        data: What it is sent.
    """

    data: bytes


@dataclass(frozen=True, slots=True)
class Reject:
    """The client is refused."""


class Authenticator(Protocol):
    """Decides who may open a control session. It must not wait: None is asked again."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject | None:
        """Decide about a client.

        Args:
            credentials: What it sent with its connect request, or as the response to a challenge.
            challenge: The challenge that it responds to; None for a connect request.

        Returns:
            The decision; None if there is none yet. A response to a challenge cannot be challenged again.
        """
        ...


class Authorizer(Protocol):
    """Decides which requests a client may make."""

    def __call__(self, request: str, principal: bytes, /) -> bool:
        """Return whether a client may make a request.

        Args:
            request: The name of the message, as in ``TruncateRecordingRequest``.
            principal: The principal that the authenticator gave the client.

        Returns:
            Whether the request is carried out.
        """
        ...


class AcceptAll:
    """Accepts every client, whatever its credentials."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept:
        """Accept the client.

        Args:
            credentials: Not used.
            challenge: Not used.

        Returns:
            An empty principal.
        """
        del credentials, challenge
        return Accept()


class CredentialTable:
    """Accepts the clients whose credentials it has.

    Args:
        principals: The principal for each credential.

    Example:
        >>> authenticator = CredentialTable({b"ops:secret": b"ops"})
    """

    def __init__(self, principals: Mapping[bytes, bytes]) -> None:
        self._principals = dict(principals)

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Reject:
        """Look the credentials up.

        Args:
            credentials: What the client sent.
            challenge: Not used.

        Returns:
            The principal, or a rejection.
        """
        del challenge
        principal = self._principals.get(credentials)
        return Reject() if principal is None else Accept(principal)


def allow_all(request: str, principal: bytes, /) -> bool:
    """Allow every request of every client.

    Args:
        request: Not used.
        principal: Not used.

    Returns:
        True.
    """
    del request, principal
    return True
