"""Which strategy a channel gets."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.aeron.channel_values import FlowControl
from mainstem.aeron.channel_values import FlowControlStrategy as Strategy
from mainstem.aeron.driver.sender.flow_control.maximum import MaxFlowControl
from mainstem.aeron.driver.sender.flow_control.minimum import RECEIVER_TIMEOUT_NS, MinFlowControl


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowControlDefaults:
    """What a channel's ``fc`` leaves open. ``group_tag`` -1 is the reference's own default."""

    strategy: Strategy = Strategy.MAX
    unicast: Strategy = Strategy.MAX
    group_tag: int = -1
    group_min_size: int = 0
    receiver_timeout_ns: int = RECEIVER_TIMEOUT_NS


def choose_flow_control(
    wanted: FlowControl | None, *, group: bool, defaults: FlowControlDefaults
) -> MaxFlowControl | MinFlowControl:
    """``wanted`` is the channel's ``fc``. It counts where there may be several receivers (``group``), else the setting does."""
    if not group and defaults.unicast is Strategy.MAX:
        return MaxFlowControl()
    fc = FlowControl(defaults.strategy if group else defaults.unicast)
    if group and wanted is not None:
        fc = wanted
    if fc.strategy is Strategy.MAX:
        return MaxFlowControl(fc.retransmit_window_multiple)
    tag = None
    if fc.strategy is Strategy.TAGGED:
        tag = defaults.group_tag if fc.group_tag is None else fc.group_tag
    return MinFlowControl(
        group_tag=tag,
        group_min_size=defaults.group_min_size if fc.group_min_size is None else fc.group_min_size,
        receiver_timeout_ns=defaults.receiver_timeout_ns if fc.receiver_timeout_ns is None else fc.receiver_timeout_ns,
        window_multiple=fc.retransmit_window_multiple,
    )
