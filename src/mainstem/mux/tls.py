"""TLS contexts made from the files that the settings name, and TLS handshakes that report failures to the peer."""

from __future__ import annotations

import contextlib
import ssl as ssl_module
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mainstem.mux.settings import ConnectionSettings

T = TypeVar("T")


class _AlertingObject(ssl_module.SSLObject):
    """Keeps the alert that OpenSSL wants to send when a handshake fails, because event loops discard it."""

    _outgoing: ssl_module.MemoryBIO

    @classmethod
    def _create(
        cls, incoming: ssl_module.MemoryBIO, outgoing: ssl_module.MemoryBIO, *arguments: Any, **options: Any
    ) -> Self:
        self: Self = super()._create(incoming, outgoing, *arguments, **options)  # type: ignore[misc]
        self._outgoing = outgoing
        return self

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl_module.SSLWantReadError, ssl_module.SSLWantWriteError):
            raise
        except ssl_module.SSLError as error:
            error._alert = self._outgoing.read()  # type: ignore[attr-defined]
            raise


async def handshake(
    sock: socket.socket, context: ssl_module.SSLContext, connect: Callable[[ssl_module.SSLContext], Awaitable[T]]
) -> T:
    """Call ``connect`` and return its result. If the TLS handshake fails, send the peer the alert that says why."""
    if context.sslobject_class is ssl_module.SSLObject:
        context.sslobject_class = _AlertingObject
    twin: socket.socket | None = None
    with contextlib.suppress(OSError):  # without a free descriptor, no alert is sent
        twin = sock.dup()  # the event loop closes the original socket
    try:
        return await connect(context)
    except OSError as error:
        if twin is not None:
            with contextlib.suppress(OSError):
                twin.send(getattr(error, "_alert", b""))
        raise
    finally:
        if twin is not None:
            twin.close()


def describe(error: BaseException) -> str:
    """Return a readable text for a socket or TLS error, also for errors that have no text or only OpenSSL's."""
    if isinstance(error, ssl_module.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl_module.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or "the peer ended the connection"


def client_context(ssl: ssl_module.SSLContext | None, settings: ConnectionSettings) -> ssl_module.SSLContext | None:
    """Return a client's context: ``ssl``, or one that trusts ``ca`` and presents ``certificate``; None means no TLS."""
    if settings.client_ca is not None:
        raise ConfigurationError("client_ca is a server's; a client trusts ca")
    # Only None means that there is no file: an empty ca must not turn TLS off.
    named = settings.certificate if settings.ca is None else settings.ca
    if not _names_files(settings, named, ssl):
        return ssl
    context = _load(lambda: ssl_module.create_default_context(cafile=settings.ca), f"ca {settings.ca}")
    _load_certificate(context, settings)
    return context


def server_context(ssl: ssl_module.SSLContext | None, settings: ConnectionSettings) -> ssl_module.SSLContext | None:
    """Return a server's context: ``ssl``, or one made from the settings; None means no TLS.

    A context made from the settings presents ``certificate``. With ``client_ca``, it demands client certificates signed by it.
    """
    if settings.ca is not None:
        raise ConfigurationError("ca is a client's; a server trusts client_ca")
    if not _names_files(settings, settings.certificate, ssl):
        if settings.client_ca is not None:
            raise ConfigurationError("client_ca needs certificate and key")
        return ssl
    context = ssl_module.create_default_context(ssl_module.Purpose.CLIENT_AUTH)
    _load_certificate(context, settings)
    if (client_ca := settings.client_ca) is not None:
        _load(lambda: context.load_verify_locations(client_ca), f"client_ca {client_ca}")
        context.verify_mode = ssl_module.CERT_REQUIRED
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
        raise ConfigurationError(f"{files}: {error.reason or error}") from None
    except OSError as error:
        raise ConfigurationError(f"{files}: {error.strerror or error}") from None


def _names_files(settings: ConnectionSettings, main_file: str | Path | None, ssl: ssl_module.SSLContext | None) -> bool:
    """Return whether the settings name files to make a context from, which excludes ``ssl``."""
    if settings.key is not None and settings.certificate is None:
        raise ConfigurationError("key needs certificate")
    if main_file is not None and ssl is not None:
        raise ConfigurationError("give either ssl= or files (certificate=, key=, ca=, client_ca=), not both")
    return main_file is not None
