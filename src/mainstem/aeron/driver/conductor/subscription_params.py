"""What a subscription's channel asks for, with the driver's settings where it asks for nothing (aeron-behaviour §23, §24)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.aeron.channel_values import CongestionControl, ControlMode
from mainstem.aeron.driver.conductor.publication_params import pick, tether_timeouts

if TYPE_CHECKING:
    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.conductor.untethered import TetherTimeouts
    from mainstem.aeron.driver.settings import DriverSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionParams:
    """One subscription's parameters. ``session_id`` None takes every session; ``group`` None follows the sender."""

    session_id: int | None
    reliable: bool
    tether: bool
    rejoin: bool
    sparse: bool
    is_response: bool
    group: bool | None
    receiver_window_length: int
    congestion_control: CongestionControl | None
    nak_delay_ns: int | None
    tether_timeouts: TetherTimeouts

    def log_fields(self) -> dict[str, Any]:
        """The fields of an image's log that come from here."""
        return {
            "reliable": self.reliable,
            "rejoin": self.rejoin,
            "tether": self.tether,
            "sparse": self.sparse,
            "is_response": self.is_response,
            "untethered_window_limit_timeout_ns": self.tether_timeouts.window_limit_ns,
            "untethered_linger_timeout_ns": self.tether_timeouts.linger_ns,
            "untethered_resting_timeout_ns": self.tether_timeouts.resting_ns,
        }

    @classmethod
    def of(cls, uri: ChannelUri, settings: DriverSettings) -> SubscriptionParams:
        """The parameters of a subscription with that channel. Raises ChannelUriError where it cannot be one."""
        uri.check_subscription()
        window_limit_ns = pick(uri.untethered_window_limit_timeout_ns, settings.untethered_window_limit_timeout_ns)
        return cls(
            session_id=uri.session_id,
            reliable=pick(uri.reliable, settings.reliable_stream),
            tether=pick(uri.tether, settings.tether_subscriptions),
            rejoin=pick(uri.rejoin, settings.rejoin_stream),
            sparse=pick(uri.sparse, settings.term_buffer_sparse_file),
            is_response=uri.control_mode is ControlMode.RESPONSE,
            group=uri.group,
            receiver_window_length=pick(uri.receiver_window_length, settings.rcv_initial_window_length),
            congestion_control=uri.congestion_control,
            nak_delay_ns=uri.nak_delay_ns,
            tether_timeouts=tether_timeouts(uri, settings, window_limit_ns),
        )
