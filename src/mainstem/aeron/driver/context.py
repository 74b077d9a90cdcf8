"""The context of a driver: its settings, directory and I/O boundaries."""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem.aeron.admission import SourceFilter, networks
from mainstem.aeron.driver.media.loss_settings import incoming_loss, outgoing_loss
from mainstem.aeron.driver.media.transport import SystemTransports
from mainstem.aeron.driver.settings import DATAGRAMS_PER_VECTOR, DriverSettings
from mainstem.aeron.files import Files, MappedFiles
from mainstem.instruments import NULL_INSTRUMENT, Instrument

if TYPE_CHECKING:
    from mainstem.aeron.admission import EndpointFilter
    from mainstem.aeron.driver.media.transport import Transports


def seeded_rng() -> Random:
    """Return a random generator with a random seed, so that no two drivers use the same sequence."""
    return Random(SystemRandom().getrandbits(64))


class DriverContext:
    """The settings, the directory and the I/O boundaries of one driver.

    The boundaries default to those of the operating system; the simulator passes its own. ``directory`` holds the CnC file and the
    logs. ``pid`` is written to the CnC file. ``transports`` defaults to UDP sockets with the loss that the settings configure.
    ``endpoint_filter`` decides which addresses may send streams to this driver, in place of the networks and rates in the settings.
    """

    def __init__(
        self,
        *,
        directory: str,
        settings: DriverSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        files: Files | None = None,
        transports: Transports | None = None,
        rng: Random | None = None,
        instrument: Instrument = NULL_INSTRUMENT,
        pid: int | None = None,
        endpoint_filter: EndpointFilter | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings or DriverSettings()
        self.clock = clock
        self.files = files or MappedFiles()
        self.transports = transports
        self.rng = rng or seeded_rng()
        self.instrument = instrument
        self.pid = os.getpid() if pid is None else pid
        self.endpoint_filter = endpoint_filter

    def source_filter(self) -> EndpointFilter | None:
        settings = self.settings
        if self.endpoint_filter is not None or not settings.has_endpoint_filter:
            return self.endpoint_filter
        return SourceFilter(
            allow=networks(settings.endpoint_filter_allow),
            deny=networks(settings.endpoint_filter_deny),
            rate=settings.endpoint_filter_rate,
            burst=settings.endpoint_filter_burst,
            total_rate=settings.endpoint_filter_total_rate,
            total_burst=settings.endpoint_filter_total_burst,
            max_term_length=settings.endpoint_filter_max_term_length,
        )

    def network(self) -> Transports:
        if self.transports is not None:
            return self.transports
        return SystemTransports(
            incoming_loss=incoming_loss(self.settings),
            outgoing_loss=outgoing_loss(self.settings),
            slots=self.settings.receiver_io_vector_capacity * DATAGRAMS_PER_VECTOR,
        )
