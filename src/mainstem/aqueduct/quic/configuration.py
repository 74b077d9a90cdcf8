"""Fill a QUIC library's configuration from `Settings`. The configurations of both libraries have the same attributes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.quic.pem_files import read_authority, read_chain
from mainstem.aqueduct.quic.qlog import QlogFiles
from mainstem.aqueduct.quic.tickets import Promises
from mainstem.aqueduct.settings import CID_LENGTH
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.quic.tickets import ServerTickets
    from mainstem.aqueduct.settings import Settings

NO_VERIFICATION = 0
"""`ssl.CERT_NONE`, which both libraries accept as a number."""


def configure(configuration: Any, settings: Settings, *, make_trace: Callable[..., Any]) -> None:
    """Fill a library's new configuration; ``make_trace`` is the library's class of qlog traces. Raises ConfigurationError."""
    configuration.connection_id_length = CID_LENGTH
    configuration.alpn_protocols = [settings.alpn]
    configuration.idle_timeout = settings.idle_timeout
    configuration.max_datagram_frame_size = 65536
    configuration.max_data = settings.connection_window
    configuration.max_stream_data = settings.stream_window
    configuration.max_datagram_size = settings.max_datagram_size
    if settings.qlog_directory is not None:
        configuration.quic_logger = QlogFiles(Path(settings.qlog_directory), make_trace)
    if settings.secrets_log is not None:
        configuration.secrets_log_file = Path(settings.secrets_log).open("a")  # noqa: SIM115 - it lives as long as the library's configuration
    if configuration.is_client:
        if not settings.verify:
            configuration.verify_mode = NO_VERIFICATION
        elif settings.ca is not None:
            configuration.load_verify_locations(cafile=read_authority(settings.ca, "certificate authority"))
        if settings.client_ca is not None:
            raise ConfigurationError("client_ca is a server's setting; a client's authorities are ca")
    if settings.certificate is not None or not configuration.is_client:
        configuration.load_cert_chain(*read_chain(settings.certificate, settings.key))


def ticket_options(
    settings: Settings, tickets: ServerTickets | None, make_ticket: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """Return the arguments by which a server's connections get and keep tickets; ``make_ticket`` makes one from its fields."""
    if tickets is None:
        return {}
    promises = Promises.of(settings)
    return {
        "session_ticket_fetcher": tickets.fetcher(promises, make_ticket),
        "session_ticket_handler": tickets.keeper(promises),
    }
