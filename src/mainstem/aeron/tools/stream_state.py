"""The state of one stream, from one sample and the previous one. The rules of the decision table test it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.counters import ChannelStatus
from mainstem.aeron.logbuffer import align_frame

if TYPE_CHECKING:
    from mainstem.aeron.tools.log_state import LogState
    from mainstem.aeron.tools.snapshot import Snapshot
    from mainstem.aeron.tools.streams import Image, Publication, Subscriber

DRIVER_TIMEOUT_MS = 10_000  # how long clients wait for a driver
PAGE = 4096  # if less than one page is free, the next new page of a sparse log fails
# A receiver reports consumption in steps of a quarter window, so a subscriber can lag that much without stopping the sender.
REPORTED_STEP = 4
# A driver raises a publisher's limit in steps of at most an eighth of the publisher's window.
LIMIT_STEP = 8


@dataclass(frozen=True)
class Status:
    snapshot: Snapshot

    @property
    def log(self) -> LogState | None:
        raise NotImplementedError

    @property
    def driver_is_gone(self) -> bool:
        return not self.snapshot.is_driver_alive(DRIVER_TIMEOUT_MS)

    @property
    def disk_is_full(self) -> bool:
        free, log = self.snapshot.free_space, self.log
        return free is not None and log is not None and log.unallocated > 0 and free < PAGE


@dataclass(frozen=True)
class ImageStatus(Status):
    """An image now and in the previous sample (None in the first one)."""

    image: Image
    before: Image | None = None

    @property
    def log(self) -> LogState | None:
        return self.image.log

    @cached_property
    def slowest(self) -> Subscriber | None:
        return min(self.image.subscribers, key=lambda s: s.position, default=None)

    @property
    def consumed(self) -> int:
        return self.slowest.position if self.slowest else self.image.position

    @property
    def unread(self) -> int:
        return max(0, self.image.position - self.consumed)

    @property
    def missing(self) -> int:
        return self.image.high_water_mark - self.image.position

    @property
    def naks_sent(self) -> int:
        return _rise(self.image.naks, self.before.naks if self.before else None)

    @property
    def has_gap(self) -> bool:
        """Whether data after a gap is waiting for a repair, and not just for the driver's next cycle."""
        if self.missing == 0:
            return False
        return self.naks_sent > 0 or (self.before is not None and self.before.position == self.image.position)

    @property
    def has_moved(self) -> bool:
        return self.before is not None and self.before.position != self.image.position

    @property
    def window(self) -> int | None:
        """The receiver's window: the configured window, or the congestion window if that is smaller."""
        windows = [w for w in (self.image.window, self.image.cubic_window) if w]
        return min(windows, default=None)

    @property
    def is_congested(self) -> bool:
        cubic, full = self.image.cubic_window, self.image.window
        return cubic is not None and full is not None and cubic < full

    @property
    def subscriber_lags(self) -> bool:
        return self.window is not None and self.unread >= self.window // REPORTED_STEP

    @property
    def window_is_used_up(self) -> bool:
        """Whether unread data fills the window, except for the step in which the receiver reports progress."""
        if self.window is None:
            return False
        return self.image.high_water_mark - self.consumed >= self.window - self.window // REPORTED_STEP


@dataclass(frozen=True)
class PublicationStatus(Status):
    """A publication now and in the previous sample (None in the first one), with its images on this driver."""

    publication: Publication
    before: Publication | None = None
    images: tuple[ImageStatus, ...] = ()
    previous: Snapshot | None = None

    @property
    def log(self) -> LogState | None:
        return self.publication.log

    @property
    def channel_is_broken(self) -> bool:
        return self.publication.channel_status == ChannelStatus.ERRORED

    @property
    def is_ended(self) -> bool:
        return self.log is not None and (self.log.is_ended or self.log.is_revoked)

    @property
    def is_connected(self) -> bool:
        if self.log is not None:
            return self.log.is_connected
        # Without a log, use the limit: if no receiver is connected, the driver lowers it to the sender's position.
        return self.publication.limit > (self.publication.sender_position or 0)

    @cached_property
    def implied_consumer(self) -> int | None:
        """The position of the slowest counted consumer, derived from the limit."""
        window = self.publication.window
        return None if window is None else self.publication.limit - window

    @cached_property
    def counted(self) -> tuple[Subscriber, ...]:
        return tuple(s for s in self.publication.subscribers if not self._is_left_out(s))

    @property
    def left_out(self) -> tuple[Subscriber, ...]:
        """Resting untethered subscribers, which are further behind than the limit allows."""
        return tuple(s for s in self.publication.subscribers if self._is_left_out(s))

    def _is_left_out(self, subscriber: Subscriber) -> bool:
        window, implied = self.publication.window, self.implied_consumer
        if window is None or implied is None or not self.is_connected:
            return False
        return subscriber.position < implied - window // LIMIT_STEP

    @cached_property
    def slowest(self) -> Subscriber | None:
        return min(self.counted, key=lambda s: s.position, default=None)

    @cached_property
    def consumer(self) -> int:
        """The lowest position that the limit follows: that of the sender, a spy or an IPC subscriber."""
        places = [s.position for s in self.counted]
        if self.publication.sender_position is not None:
            places.append(self.publication.sender_position)
        return min(places, default=self.publication.position)

    @property
    def backlog(self) -> int:
        return max(0, self.publication.position - self.consumer)

    @property
    def is_at_limit(self) -> bool:
        return self.publication.position >= self.publication.limit

    @property
    def has_stopped(self) -> bool:
        if self.before is None or not self.backlog:
            return False
        return PublicationStatus(self.snapshot, self.before).consumer == self.consumer

    @property
    def is_stalled(self) -> bool:
        """Whether offers are being refused or written bytes are not advancing."""
        if self.is_at_limit and (self.backlog > 0 or (self.is_connected and self.limit_lags)):
            return True
        return self.has_stopped

    @property
    def has_moved(self) -> bool:
        return self.before is not None and self.before.position != self.publication.position

    @property
    def spy_is_slowest(self) -> bool:
        sent = self.publication.sender_position
        if sent is None or self.slowest is None:
            return False
        return self.slowest.position < sent or (self.spies_drive and self.slowest.position == sent)

    @property
    def spies_drive(self) -> bool:
        """Whether only spies move the sender, because no receiver has granted the bytes that were sent."""
        sent, limit = self.publication.sender_position, self.publication.sender_limit
        if sent is None or limit is None or self.slowest is None or self.log is None:
            return False
        return self.log.spies_simulate_connection and (sent > limit or limit == 0)

    @property
    def claim_is_open(self) -> bool:
        return self.log is not None and self.log.next_frame_length is not None and self.log.next_frame_length <= 0

    @property
    def next_frame(self) -> int:
        if self.log is None:
            return align_frame(1)
        length = self.log.next_frame_length
        return align_frame(length) if length is not None and length > 0 else self.log.mtu

    @property
    def sender_room(self) -> int | None:
        publication = self.publication
        if publication.sender_limit is None or publication.sender_position is None:
            return None
        return max(0, publication.sender_limit - publication.sender_position)

    @property
    def sender_is_out_of_window(self) -> bool:
        """Whether the next frame exceeds the receivers' window."""
        return self.sender_room is not None and self.sender_room < min(self.next_frame, self.mtu)

    @property
    def mtu(self) -> int:
        """The length of the longest datagram. For a padding frame, only the header is sent."""
        return self.log.mtu if self.log is not None else align_frame(1)

    @cached_property
    def limiting_image(self) -> ImageStatus | None:
        """The image on this driver that explains the sender's limit, if there is one."""
        limit = self.publication.sender_limit
        if limit is None:
            return None
        for image in sorted(self.images, key=lambda i: i.consumed):
            window = image.window
            if window and limit - window - window // REPORTED_STEP <= image.consumed <= limit - window // 2:
                return image
        return None

    @property
    def only_image(self) -> ImageStatus | None:
        publication = self.publication
        if publication.receivers is not None or publication.destinations is not None or len(self.images) != 1:
            return None
        return None if is_multicast(publication.key.channel) else self.images[0]

    @property
    def status_message_is_late(self) -> bool:
        """Whether the only image's subscribers have advanced but no status message has told the sender."""
        image, limit = self.only_image, self.publication.sender_limit
        if image is None or image.window is None or limit is None:
            return False
        return image.consumed > limit - image.window // 2

    @property
    def reader(self) -> Subscriber | None:
        """The subscriber that the stream is waiting for: the slowest one of an IPC log or of the image that limits the window."""
        if self.publication.is_ipc:
            return self.slowest if self.is_stalled and not self.limit_lags else None
        image = self.limiting_image
        if not self.sender_is_out_of_window or image is None or not image.subscriber_lags:
            return None
        return image.slowest

    @property
    def limit_lags(self) -> bool:
        window, implied = self.publication.window, self.implied_consumer
        return window is not None and implied is not None and self.consumer - implied > window // LIMIT_STEP

    @property
    def short_sends(self) -> int:
        if self.previous is None:
            return 0
        return self.snapshot.system(SystemCounter.SHORT_SENDS) - self.previous.system(SystemCounter.SHORT_SENDS)

    @property
    def back_pressure_events(self) -> int:
        return _rise(self.publication.back_pressure_events, self.before.back_pressure_events if self.before else None)


def is_multicast(channel: str) -> bool:
    """Return whether the channel's endpoint is a multicast group. A name counts as a single host."""
    for parameter in channel.partition("?")[2].split("|"):
        name, _, value = parameter.partition("=")
        if name == "endpoint":
            try:
                return ip_address(value.rpartition(":")[0].strip("[]")).is_multicast
            except ValueError:
                return False
    return False


def _rise(now: int | None, before: int | None) -> int:
    return max(0, now - before) if now is not None and before is not None else 0
