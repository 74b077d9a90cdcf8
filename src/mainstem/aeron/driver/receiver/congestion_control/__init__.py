"""How a receiver chooses the window it offers (behaviour, 18)."""

from __future__ import annotations

from mainstem.aeron.driver.receiver.congestion_control.cubic import CubicCongestionControl
from mainstem.aeron.driver.receiver.congestion_control.static import CongestionControl, StaticWindow

__all__ = ["CongestionControl", "CubicCongestionControl", "StaticWindow"]
