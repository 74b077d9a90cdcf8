"""The parameters of publications and subscriptions, from the channel or else the settings (docs/protocols/aeron.md, 23, 24).

Only this module chooses defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mainstem._core import layout
from mainstem._internal.frozen import frozen
from mainstem._internal.validation import INT32_MAX
from mainstem.aeron.channel_values import RESPONSE_PROTOTYPE, ControlMode
from mainstem.aeron.driver.conductor.session_ids import random_i32
from mainstem.aeron.logbuffer import wrap_i32

if TYPE_CHECKING:
    from random import Random

    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.settings import DriverSettings

T = TypeVar("T")

NO_RESPONSE = -1


@frozen
class TetherTimeouts:
    """The times for which an untethered subscriber may stay below the limit, then lingers, then rests."""

    window_limit_ns: int
    linger_ns: int
    resting_ns: int

    @classmethod
    def of(cls, uri: ChannelUri, settings: DriverSettings) -> TetherTimeouts:
        """Return the timeouts of a channel. If channel and settings have no linger timeout, it is the window limit timeout."""
        window_limit_ns = pick(uri.untethered_window_limit_timeout_ns, settings.untethered_window_limit_timeout_ns)
        linger_ns = uri.untethered_linger_timeout_ns or settings.untethered_linger_timeout_ns
        return cls(
            window_limit_ns=window_limit_ns,
            linger_ns=window_limit_ns if linger_ns is None else linger_ns,
            resting_ns=pick(uri.untethered_resting_timeout_ns, settings.untethered_resting_timeout_ns),
        )

    def log_fields(self) -> dict[str, Any]:
        return {
            "untethered_window_limit_timeout_ns": self.window_limit_ns,
            "untethered_linger_timeout_ns": self.linger_ns,
            "untethered_resting_timeout_ns": self.resting_ns,
        }


class TaggedSession(NamedTuple):
    """The values that a publication with ``session-id=tag:N`` takes from the publication with that tag."""

    session_id: int
    mtu: int
    term_length: int


@frozen
class PublicationParams:
    term_length: int
    mtu: int
    publication_window_length: int
    linger_ns: int
    signal_eos: bool
    spies_simulate_connection: bool
    sparse: bool
    max_resend: int
    tether_timeouts: TetherTimeouts
    session_id: int | None = None
    initial_term_id: int | None = None
    term_id: int | None = None
    term_offset: int = 0
    entity_tag: int = -1
    response_correlation_id: int = NO_RESPONSE
    is_response: bool = False
    so_sndbuf: int = 0
    so_rcvbuf: int = 0

    @classmethod
    def of(cls, uri: ChannelUri, settings: DriverSettings, tagged: TaggedSession | None = None) -> PublicationParams:
        """Return a channel's parameters. ``tagged`` has the values for ``session-id=tag:N``. Raises ChannelUriError."""
        ipc = uri.is_ipc
        term_length, mtu = settings.term_buffer_length, settings.mtu_length
        if ipc:
            term_length, mtu = settings.ipc_term_buffer_length, settings.ipc_mtu_length
        is_response = uri.control_mode is ControlMode.RESPONSE
        response = pick(uri.response_correlation_id, NO_RESPONSE)
        if is_response and response == RESPONSE_PROTOTYPE and not ipc:
            term_length = layout.TERM_MIN_LENGTH  # nothing is published with it
        if tagged is not None:
            term_length, mtu = tagged.term_length, tagged.mtu
        term_length, mtu = pick(uri.term_length, term_length), pick(uri.mtu, mtu)
        initial_term_id, term_id, term_offset = _start(uri, term_length)
        return cls(
            term_length=term_length,
            mtu=mtu,
            publication_window_length=_window(uri, settings, term_length=term_length, mtu=mtu),
            linger_ns=pick(uri.linger_ns, settings.publication_linger_timeout_ns),
            signal_eos=pick(uri.eos, True),
            spies_simulate_connection=pick(uri.spies_simulate_connection, settings.spies_simulate_connection),
            sparse=pick(uri.sparse, settings.term_buffer_sparse_file),
            max_resend=pick(uri.max_resend, settings.max_resend),
            tether_timeouts=TetherTimeouts.of(uri, settings),
            session_id=uri.session_id if tagged is None else tagged.session_id,
            initial_term_id=initial_term_id,
            term_id=term_id,
            term_offset=term_offset,
            entity_tag=pick(uri.entity_tag, -1),
            response_correlation_id=response,
            is_response=is_response,
            so_sndbuf=0 if ipc else min(uri.so_sndbuf or 0, INT32_MAX),
            so_rcvbuf=0 if ipc else min(uri.so_rcvbuf or 0, INT32_MAX),
        )

    def log_fields(self) -> dict[str, Any]:
        return {
            "term_length": self.term_length,
            "mtu": self.mtu,
            "publication_window_length": self.publication_window_length,
            "max_resend": self.max_resend,
            "entity_tag": self.entity_tag,
            "response_correlation_id": self.response_correlation_id,
            "linger_ns": self.linger_ns,
            **self.tether_timeouts.log_fields(),
            "is_response": self.is_response,
            "sparse": self.sparse,
            "signal_eos": self.signal_eos,
            "spies_simulate_connection": self.spies_simulate_connection,
        }


@frozen
class SubscriptionParams:
    """The parameters of a subscription.

    A ``session_id`` of None means all sessions. A ``group`` of None leaves the choice to the settings, the network and the sender.
    """

    session_id: int | None
    reliable: bool
    tether: bool
    rejoin: bool
    sparse: bool
    is_response: bool
    group: bool | None
    receiver_window_length: int
    tether_timeouts: TetherTimeouts

    def log_fields(self) -> dict[str, Any]:
        return {
            "reliable": self.reliable,
            "rejoin": self.rejoin,
            "tether": self.tether,
            "sparse": self.sparse,
            "is_response": self.is_response,
            **self.tether_timeouts.log_fields(),
        }

    @classmethod
    def of(cls, uri: ChannelUri, settings: DriverSettings) -> SubscriptionParams:
        return cls(
            session_id=uri.session_id,
            reliable=pick(uri.reliable, settings.reliable_stream),
            tether=pick(uri.tether, settings.tether_subscriptions),
            rejoin=pick(uri.rejoin, settings.rejoin_stream),
            sparse=pick(uri.sparse, settings.term_buffer_sparse_file),
            is_response=uri.control_mode is ControlMode.RESPONSE,
            group=uri.group,
            receiver_window_length=pick(uri.receiver_window_length, settings.rcv_initial_window_length),
            tether_timeouts=TetherTimeouts.of(uri, settings),
        )


def pick(requested: T | None, default: T) -> T:
    return default if requested is None else requested


def _window(uri: ChannelUri, settings: DriverSettings, *, term_length: int, mtu: int) -> int:
    if uri.is_ipc:
        setting = settings.ipc_publication_term_window_length
    else:
        setting = settings.publication_term_window_length
    window = uri.publication_window_length
    if window is None:
        return min(setting or term_length, term_length // 2)
    if window < mtu:
        raise uri.fault(f"pub-wnd={window} cannot be less than the mtu={mtu}", "pub-wnd")
    if window > term_length // 2:
        raise uri.fault(f"pub-wnd={window} must not exceed half the term-length={term_length}", "pub-wnd")
    return window


def _start(uri: ChannelUri, term_length: int) -> tuple[int | None, int | None, int]:
    initial, first, offset = uri.init_term_id, uri.term_id, uri.term_offset
    if initial is None and first is None and offset is None:
        return None, None, 0
    if initial is None or first is None or offset is None:
        key = "init-term-id" if initial is not None else "term-id" if first is not None else "term-offset"
        raise uri.fault("params must be used as a complete set: init-term-id term-id term-offset", key)
    if (first - initial) & 0xFFFF_FFFF > INT32_MAX:
        raise uri.fault(f"difference greater than 2^31 - 1: init-term-id={initial} when term-id={first}", "term-id")
    if offset > term_length:
        requested = uri.values["term-offset"]
        why = "out of range" if requested.startswith("-") else f"> term-length={term_length}"
        raise uri.fault(f"term-offset={requested} {why}", "term-offset")
    return initial, first, offset


def first_term_ids(params: PublicationParams, rng: Random) -> tuple[int, int, int]:
    """Return the initial term id, the first term id, and the offset in it.

    They are as requested, or else a random term id for both and offset 0.
    """
    if params.initial_term_id is None or params.term_id is None:
        initial = random_i32(rng)
        return initial, initial, 0
    if params.term_offset == params.term_length:
        return params.initial_term_id, wrap_i32(params.term_id + 1), 0
    return params.initial_term_id, params.term_id, params.term_offset
