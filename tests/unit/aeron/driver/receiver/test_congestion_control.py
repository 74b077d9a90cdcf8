"""Windows that receivers offer."""

from __future__ import annotations

from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.driver.receiver.congestion_control import CubicCongestionControl, StaticWindowCongestionControl
from mainstem.aeron.protocol.frames import Rttm

SECOND = 1_000_000_000
ROUND_TRIP = 100_000


class Shown:
    value = 0

    def set_release(self, value: int) -> None:
        self.value = value


def cubic(window: int = 1_408 * 100, *, tcp_mode: bool = False) -> CubicCongestionControl:
    return CubicCongestionControl(max_window_length=window, mtu=1_408, now_ns=0, tcp_mode=tcp_mode)


def grow(control: CubicCongestionControl, from_ns: int, to_ns: int) -> None:
    for now_ns in range(from_ns, to_ns, ROUND_TRIP * 100):
        control.on_time(now_ns, progressed=True)


def test_a_static_window_stays() -> None:
    window = StaticWindowCongestionControl(131_072)
    assert not window.on_loss(0)
    assert not window.on_time(SECOND, progressed=True)
    assert (window.window_length, window.deadline_ns) == (131_072, NEVER_NS)


def test_cubic_begins_with_ten_datagrams_or_all_that_fit() -> None:
    assert cubic().window_length == 14_080
    assert cubic(1_408 * 3).window_length == 4_224


def test_cubic_shrinks_by_a_fifth_on_loss_and_forces_a_status_message() -> None:
    control = cubic()
    assert control.on_loss(0)
    assert control.window_length == 8 * 1_408
    for _ in range(20):
        control.on_loss(0)
    assert control.window_length == 1_408


def test_cubic_is_back_where_it_lost_after_k_seconds_and_then_goes_beyond_up_to_its_maximum() -> None:
    control = cubic()
    grow(control, 0, 10 * SECOND)
    assert control.window_length == 100 * 1_408
    control.on_loss(10 * SECOND)
    assert control.window_length == 80 * 1_408
    k_ns = int((100 * 0.2 / 0.4) ** (1 / 3) * SECOND)
    grow(control, 10 * SECOND, 10 * SECOND + k_ns // 2)
    assert 90 * 1_408 < control.window_length < 100 * 1_408
    grow(control, 10 * SECOND + k_ns // 2, 12 * SECOND + k_ns)
    assert control.window_length == 100 * 1_408


def test_a_window_of_one_datagram_forces_a_status_message_while_data_comes() -> None:
    control = cubic(1_408)
    assert control.on_time(ROUND_TRIP, progressed=True)
    assert not control.on_time(2 * ROUND_TRIP, progressed=False)


def test_in_tcp_mode_the_window_grows_at_least_as_tcps_does() -> None:
    plain, tcp = cubic(), cubic(tcp_mode=True)
    for control in (plain, tcp):
        grow(control, 0, 10 * SECOND)
        control.on_loss(10 * SECOND)
        control.on_time(10 * SECOND + 10 * ROUND_TRIP, progressed=True)
    assert tcp.window_length > plain.window_length


def test_measures_round_trips_only_if_enabled_and_ignores_unrequested_replies() -> None:
    shown, window = Shown(), Shown()
    silent = cubic()
    assert not silent.measures_at(SECOND)
    control = CubicCongestionControl(
        max_window_length=140_800, mtu=1_408, now_ns=0, measures=True, round_trip_gauge=shown, window_gauge=window
    )
    assert window.value == 14_080
    answer = Rttm(session_id=1, stream_id=2, echo_timestamp=SECOND, reception_delta=1_000, receiver_id=9)
    control.on_measurement(answer, SECOND + 251_000)
    assert shown.value == 0
    assert not control.measures_at(4 * ROUND_TRIP - 1)
    assert control.measures_at(SECOND)
    control.on_measurement(answer, SECOND + 251_000)
    assert control.round_trip_ns == shown.value == 250_000
    assert not control.measures_at(SECOND + 999_999)
    assert control.measures_at(SECOND + 1_000_000)


def test_a_small_window_is_back_one_round_trip_after_a_loss() -> None:
    cubic = CubicCongestionControl(max_window_length=100 * 1408, mtu=1408, now_ns=0)
    for step in range(40):
        cubic.on_loss(step)
    now_ns = 0
    while cubic.window_length < 5 * 1408:
        now_ns += 100_000_000
        cubic.on_time(now_ns, progressed=True)
    cubic.on_loss(now_ns)
    assert cubic.window_length == 4 * 1408
    cubic.on_time(now_ns + 200_000_000, progressed=True)
    assert cubic.window_length == 5 * 1408
