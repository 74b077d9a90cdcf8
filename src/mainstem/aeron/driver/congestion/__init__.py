"""How a receiver chooses the window it offers (behaviour, 18)."""

from __future__ import annotations

from mainstem.aeron.driver.congestion.cubic import CubicCongestionControl
from mainstem.aeron.driver.congestion.static import CongestionControl, StaticWindow

__all__ = ["CongestionControl", "CubicCongestionControl", "StaticWindow"]
