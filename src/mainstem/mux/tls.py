"""TLS contexts made from the files that the settings name, and TLS handshakes that report failures to the peer."""

from __future__ import annotations

import contextlib
import ssl as ssl_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem._internal.error_texts import tls_problem
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mainstem.mux.settings import ConnectionSettings

T = TypeVar("T")

# OpenSSL's reasons if a peer sends something other than TLS.
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
# The types of the first TLS record from a peer: a client's ClientHello, or the alert with which a server refuses a plain client.
_HANDSHAKE, _ALERT = 0x16, 0x15
# A fatal alert as a TLS record: it also tells a plain client that this end uses TLS.
HANDSHAKE_FAILURE = bytes((_ALERT, 3, 1, 0, 2, 2, 40))
# What a plain server responds to a ClientHello, so that the client's handshake fails for the right reason.
NO_TLS_HERE = b"no TLS here\n"


class _AlertingObject(ssl_module.SSLObject):
    """Keeps the alert that OpenSSL wants to send when a handshake fails, because event loops discard it.

    It also recognizes a peer without TLS by its first byte. OpenSSL waits for five, and for many more after some of them, while a
    peer of bymux may have sent everything that it has to send.
    """

    _incoming: ssl_module.MemoryBIO
    _outgoing: ssl_module.MemoryBIO
    _has_begun = False

    @classmethod
    def _create(
        cls, incoming: ssl_module.MemoryBIO, outgoing: ssl_module.MemoryBIO, *arguments: Any, **options: Any
    ) -> Self:
        self: Self = super()._create(incoming, outgoing, *arguments, **options)  # type: ignore[misc]
        self._incoming = incoming
        self._outgoing = outgoing
        return self

    def do_handshake(self) -> None:
        if not self._has_begun and (first := self._incoming.read()):
            self._has_begun = True
            if first[0] not in (_HANDSHAKE, _ALERT):
                error = ssl_module.SSLError(ssl_module.SSL_ERROR_SSL, "wrong version number")
                error.reason = "WRONG_VERSION_NUMBER"
                raise error
            self._incoming.write(first)
        try:
            super().do_handshake()
        except (ssl_module.SSLWantReadError, ssl_module.SSLWantWriteError):
            raise
        except ssl_module.SSLError as error:
            error._alert = self._outgoing.read()  # type: ignore[attr-defined]
            raise


async def handshake(
    sock: socket.socket,
    context: ssl_module.SSLContext,
    connect: Callable[[ssl_module.SSLContext], Awaitable[T]],
    *,
    farewell: bytes = b"",
) -> T:
    """Call ``connect`` and return its result. If the TLS handshake fails, send the peer the alert that says why.

    OpenSSL has no alert for a peer that speaks something else, or that sends nothing in time. Such a peer gets ``farewell``.
    """
    if context.sslobject_class is ssl_module.SSLObject:
        context.sslobject_class = _AlertingObject
    twin: socket.socket | None = None
    with contextlib.suppress(OSError):  # without a free descriptor, no alert is sent
        twin = sock.dup()  # the event loop closes the original socket
    try:
        return await connect(context)
    except BaseException as error:
        if twin is not None:
            with contextlib.suppress(OSError):
                twin.send(getattr(error, "_alert", b"") or farewell)
        raise
    finally:
        if twin is not None:
            twin.close()


def describe(error: BaseException) -> str:
    """Return a readable text for a socket or TLS error, also for errors that have no text or only OpenSSL's."""
    if isinstance(error, ssl_module.SSLError):
        text = tls_problem(error)
        return f"{text}: the peer does not use TLS" if error.reason in NOT_TLS else text
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or "the peer ended the connection"


def tls_hint(first: memoryview) -> str:
    """Return what the peer of a plain connection did if its first bytes are TLS, and what to change; empty if they are not."""
    if begins_handshake(first):
        return "began a TLS handshake, and this end does not use TLS: set certificate and key, or connect without TLS"
    if len(first) >= 3 and first[0] == _ALERT and first[1] == 3 and first[2] <= 4:
        return "responded with a TLS alert, because it uses TLS: connect with ssl=True or ca"
    return ""


def begins_handshake(first: memoryview) -> bool:
    """Return whether a peer's first bytes are those of a TLS client."""
    return len(first) >= 3 and first[0] == _HANDSHAKE and first[1] == 3 and first[2] <= 4


def client_context(
    ssl: ssl_module.SSLContext | bool | None, settings: ConnectionSettings
) -> ssl_module.SSLContext | None:
    """Return a client's context; None means no TLS.

    It is ``ssl``, or one that trusts ``ca`` and presents ``certificate``. ``True`` makes a context even without these files; it
    trusts the system's authorities.
    """
    given = _given_context(ssl)
    if settings.client_ca is not None:
        raise ConfigurationError("client_ca is a server's; a client trusts ca")
    # Only None means that there is no file: an empty ca must not turn TLS off.
    named = settings.certificate if settings.ca is None else settings.ca
    if not _names_files(settings, named, given) and ssl is not True:
        return _of_kind(given, "a client", unusable=ssl_module.PROTOCOL_TLS_SERVER)
    context = _load(lambda: ssl_module.create_default_context(cafile=settings.ca), f"ca {settings.ca}")
    _load_certificate(context, settings)
    return context


def server_context(
    ssl: ssl_module.SSLContext | bool | None, settings: ConnectionSettings
) -> ssl_module.SSLContext | None:
    """Return a server's context: ``ssl``, or one made from the settings; None means no TLS.

    A context made from the settings presents ``certificate``. With ``client_ca``, it demands client certificates signed by it.
    """
    given = _given_context(ssl)
    if settings.ca is not None:
        raise ConfigurationError("ca is a client's; a server trusts client_ca")
    if not _names_files(settings, settings.certificate, given):
        if settings.client_ca is not None:
            raise ConfigurationError("client_ca needs certificate and key")
        if ssl is True:
            raise ConfigurationError(
                "ssl=True is not enough for a server, which needs a certificate: set certificate and key"
            )
        return _of_kind(given, "a server", unusable=ssl_module.PROTOCOL_TLS_CLIENT)
    context = ssl_module.create_default_context(ssl_module.Purpose.CLIENT_AUTH)
    _load_certificate(context, settings)
    if (client_ca := settings.client_ca) is not None:
        _load(lambda: context.load_verify_locations(client_ca), f"client_ca {client_ca}")
        context.verify_mode = ssl_module.CERT_REQUIRED
    return context


def _given_context(ssl: ssl_module.SSLContext | bool | None) -> ssl_module.SSLContext | None:
    """Return the context that the caller passed, or None for True, False and None."""
    if isinstance(ssl, ssl_module.SSLContext):
        return ssl
    if ssl is None or isinstance(ssl, bool):
        return None
    raise ConfigurationError(f"ssl must be an ssl.SSLContext, True or None (got {ssl!r})")


def _of_kind(context: ssl_module.SSLContext | None, who: str, *, unusable: int) -> ssl_module.SSLContext | None:
    if context is not None and context.protocol == unusable:
        raise ConfigurationError(f"ssl: {who} cannot use a context of the other end's kind ({context.protocol.name})")
    return context


def _load_certificate(context: ssl_module.SSLContext, settings: ConnectionSettings) -> None:
    if (certificate := settings.certificate) is None:
        return

    def no_password() -> str:
        raise ConfigurationError(f"key {settings.key}: the file is encrypted; a key without a password is needed")

    files = f"certificate {certificate}, key {settings.key or certificate}"
    _load(lambda: context.load_cert_chain(certificate, settings.key, password=no_password), files)


def _load(load: Callable[[], T], files: str) -> T:
    try:
        return load()
    except ssl_module.SSLError as error:
        raise ConfigurationError(f"{files}: {tls_problem(error)}") from None
    except OSError as error:
        raise ConfigurationError(f"{files}: {error.strerror or error}") from None


def _names_files(settings: ConnectionSettings, main_file: str | Path | None, ssl: ssl_module.SSLContext | None) -> bool:
    """Return whether the settings name files to make a context from, which excludes ``ssl``."""
    if settings.key is not None and settings.certificate is None:
        raise ConfigurationError("key needs certificate")
    if main_file is not None and ssl is not None:
        raise ConfigurationError("give either ssl= or files (certificate=, key=, ca=, client_ca=), not both")
    return main_file is not None
