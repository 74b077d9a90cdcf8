"""How a sender chooses its limit from what receivers report (behaviour, 17)."""

from __future__ import annotations

from mainstem.aeron.driver.sender.flow_control.choice import FlowControlDefaults, choose_flow_control
from mainstem.aeron.driver.sender.flow_control.maximum import MaxFlowControl
from mainstem.aeron.driver.sender.flow_control.minimum import MinFlowControl
from mainstem.aeron.driver.sender.flow_control.strategy import FlowControlStrategy

__all__ = ["FlowControlDefaults", "FlowControlStrategy", "MaxFlowControl", "MinFlowControl", "choose_flow_control"]
