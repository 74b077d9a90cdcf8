"""The options of ``mainstem record``. Messages name an option by its field in backticks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - the command line reads the annotations
from typing import TYPE_CHECKING

from mainstem._internal.exposure import TLS_OPTIONS, check_host_exposure
from mainstem._internal.file_modes import parse_mode
from mainstem._internal.urls import split_url
from mainstem.aeron.tools.channel_checks import check_subscription
from mainstem.errors import ConfigurationError
from mainstem.recording.recorder import DEFAULT_SEGMENT_LENGTH, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from urllib.parse import SplitResult

    from mainstem.recording.crash_recovery import Recovery


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What to record into the directory ``out``: streams of an Aeron ``channel``, or the messages that arrive at a server.

    Of a server, ``channel`` is the URL, the first of ``streams`` the id in the rows, and ``keyed`` says that messages begin with
    a key.
    """

    channel: str
    out: Path
    streams: tuple[int, ...] = ()
    driver_directory: str = ""
    segment_length: int = DEFAULT_SEGMENT_LENGTH
    durable: bool = False
    exit_at_end: bool = False
    file_mode: str = ""
    group: str = ""
    stats: bool = False
    keyed: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False

    @property
    def is_aeron(self) -> bool:
        return self.channel.startswith("aeron")

    @property
    def server(self) -> SplitResult:
        """The URL of the server. Raises ConfigurationError if it is invalid."""
        return split_url(self.channel, f"channel {self.channel!r}")

    @property
    def server_options(self) -> dict[str, str]:
        """The options of the protocol's ``serve``."""
        return {"certificate": str(self.tls_cert), "key": str(self.tls_key or "")} if self.tls_cert else {}

    def check(self) -> None:
        parse_mode(self.file_mode, name="`file_mode`")
        if self.is_aeron:
            check_subscription(self.channel)
            if not self.streams:
                raise ConfigurationError("`streams` is required to record from an Aeron channel")
            return
        protection = {TLS_OPTIONS: self.tls_cert is not None}
        check_host_exposure(
            self.server.hostname, insecure=self.insecure, protection=protection, name=f"channel {self.channel!r}"
        )

    def open_recorder(self, on_recovery: Callable[[Recovery], object]) -> Recorder:
        """Open the directory, and recover its recordings. Raises RecordingError and ConfigurationError."""
        return Recorder(
            self.out,
            segment_length=self.segment_length,
            durable=self.durable,
            mode=parse_mode(self.file_mode, name="`file_mode`"),
            group=self.group,
            on_recovery=on_recovery,
        )
