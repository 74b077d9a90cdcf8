"""Settings of an archive, under the reference's names, with their limits."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from mainstem._internal.clock import NS_PER_MS, NS_PER_SECOND
from mainstem._internal.validation import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from mainstem.errors import ConfigurationError
from mainstem.settings import Settings, boolean, choice, duration, integer, size, text

INT32 = {"low": INT32_MIN, "high": INT32_MAX}
MAX_COUNT = 1 << 20


class ThreadingMode(StrEnum):
    """Which thread runs an archive: its own, or the caller's through ``invoke``.

    DEDICATED, the reference's mode with three threads, is not supported.
    """

    SHARED = "SHARED"
    INVOKER = "INVOKER"
    DEDICATED = "DEDICATED"


class ArchiveSettings(Settings):
    """The settings of an archive. Durations are in nanoseconds, lengths in bytes.

    Example:
        >>> settings = ArchiveSettings(control_channel="aeron:udp?endpoint=localhost:8010", max_concurrent_replays=100)
    """

    SECTION: ClassVar[str] = "archive"
    ENV_PREFIX: ClassVar[str] = "AERON_ARCHIVE_"

    id: int = integer(-1, "The archive's id; -1 to get a new one from the driver.", low=INT64_MIN, high=INT64_MAX)
    threading_mode: ThreadingMode = choice(
        ThreadingMode.SHARED,
        "What runs the archive: SHARED for its own thread, INVOKER if the caller calls invoke at least once a second. DEDICATED is "
        "refused.",
    )
    control_channel: str = text(
        "aeron:udp?endpoint=localhost:8010",
        "The UDP channel of requests; empty for none. Anyone who can reach it can record, replay and delete.",
        accepts="a UDP channel with an endpoint",
    )
    control_stream_id: int = integer(10, "The stream id of requests over UDP.", **INT32)
    local_control_channel: str = text(
        "aeron:ipc?term-length=64k", "The IPC channel of requests.", accepts="an IPC channel"
    )
    local_control_stream_id: int = integer(10, "The stream id of requests over IPC.", **INT32)
    control_term_buffer_length: int = size(
        64 << 10,
        "Term length of response publications. A client can ask for less, but not for more.",
        low=64 << 10,
        high=1 << 30,
        power_of_two=True,
    )
    control_term_buffer_sparse: bool = boolean(True, "Whether logs of response publications are sparse.")
    control_mtu_length: int = size(
        0,
        "The largest MTU of response publications; 0 for the driver's, and at most 1408 if a client asks for one.",
        high=65504,
        multiple=32,
    )
    recording_events_channel: str = text("", "The channel of recording events; empty for none.")
    recording_events_stream_id: int = integer(30, "The stream id of recording events.", **INT32)
    segment_file_length: int = size(
        128 << 20,
        "The length of a segment file; at least the term length of each stream.",
        low=64 << 10,
        high=1 << 30,
        power_of_two=True,
    )
    replication_channel: str = text(
        "", "Where other archives replay to when this one replicates; empty for a free port of its own host."
    )
    control_response_channel: str = text(
        "", "Where other archives respond to when this one replicates; empty for a free port of its own host."
    )
    control_response_stream_id: int = integer(20, "The stream id of their responses.", **INT32)
    message_timeout_ns: int = duration(
        10 * NS_PER_SECOND, "How long another archive may take to respond to this one.", low=NS_PER_MS
    )
    file_io_max_length: int = size(
        1 << 20, "The most bytes that a replay reads at once.", low=64 << 10, high=1 << 30, power_of_two=True
    )
    file_sync_level: int = integer(
        0, "0 leaves writes to the kernel; 1 and 2 flush each of them to the device.", low=0, high=2
    )
    low_storage_space_threshold: int = size(
        128 << 20, "Free space at or below which no recording is started or extended."
    )
    max_concurrent_recordings: int = integer(
        20,
        "How many recordings may be active at once. Further streams of a recorded channel wait.",
        low=0,
        high=MAX_COUNT,
    )
    max_recording_subscriptions: int = integer(
        1024,
        "How many subscriptions that record may be open at once. One stays open after its recordings have ended, and records what "
        "the channel brings next, until its client stops it.",
        low=0,
        high=MAX_COUNT,
    )
    max_concurrent_replays: int = integer(20, "How many replays may run at once.", low=0, high=MAX_COUNT)
    max_concurrent_replications: int = integer(
        20, "How many replications may run at once. Each is one of the recordings, too.", low=0, high=MAX_COUNT
    )
    max_control_sessions: int = integer(
        256,
        "How many control sessions may be open. If there are more, the oldest one that has not authenticated makes way.",
        low=1,
        high=MAX_COUNT,
    )
    max_control_sessions_per_address: int = integer(
        64, "How many of them may come from one IPv4 address or IPv6 /64 network.", low=1, high=MAX_COUNT
    )
    max_queued_responses: int = integer(
        1024,
        "How many responses of a session may wait for its client; beyond that the session ends.",
        low=1,
        high=MAX_COUNT,
    )
    connect_timeout_ns: int = duration(
        5 * NS_PER_SECOND, "How long connecting, a waiting response and a replay's subscriber may take.", low=NS_PER_MS
    )
    session_liveness_check_interval_ns: int = duration(
        NS_PER_SECOND, "How often an idle session is sent a ping.", low=NS_PER_MS
    )
    replay_linger_timeout_ns: int = duration(5 * NS_PER_SECOND, "How long a replay lingers after its last byte.")

    def validate(self) -> None:
        """Check the threading mode and the channels' media.

        Raises:
            ConfigurationError: The threading mode is DEDICATED, or a control channel has the wrong medium.
        """
        if self.threading_mode is ThreadingMode.DEDICATED:
            raise ConfigurationError(
                "threading_mode='DEDICATED': this archive has one thread, because three of one Python interpreter gain too little; "
                "use SHARED, or run several archives"
            )
        if self.control_channel and not self.control_channel.startswith("aeron:udp"):
            raise ConfigurationError(f"control_channel={self.control_channel!r}: must be a UDP channel (aeron:udp?...)")
        if not self.local_control_channel.startswith("aeron:ipc"):
            raise ConfigurationError(
                f"local_control_channel={self.local_control_channel!r}: must be an IPC channel (aeron:ipc)"
            )
