"""The settings that make a driver lose datagrams on purpose, for demonstrations and tests (docs/protocols/aeron.md, 24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.loss_generator import EVERY_TYPE, GapLoss, LossGenerator, RandomLoss
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.driver.settings import DriverSettings


def loss_factory(interceptors: str, settings: DriverSettings) -> Callable[[int], LossGenerator] | None:
    """Make a loss generator for each transport, from its number; None when ``interceptors`` is empty.

    ``interceptors`` names ``loss``, ``fixed-loss`` and ``multi-gap-loss``, separated by commas. Every transport loses other
    datagrams, and the same ones in every run. Raises ConfigurationError.
    """
    names = [name.strip() for name in interceptors.split(",") if name.strip()]
    for name in names:
        try:
            _make(name, settings, 0, None)
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from error
    if not names:
        return None

    def make(number: int) -> LossGenerator:
        generator: LossGenerator | None = None
        for name in reversed(names):
            generator = _make(name, settings, number, generator)
        assert generator is not None
        return generator

    return make


def _make(name: str, settings: DriverSettings, number: int, then: LossGenerator | None) -> LossGenerator:
    if name == "loss":
        values = _arguments(
            settings.udp_channel_transport_bindings_loss_args, {"rate", "seed", "recv-msg-mask"}, "loss"
        )
        seed = int(values.get("seed", "1")) + number
        mask = int(values.get("recv-msg-mask", hex(EVERY_TYPE)), 16)
        return RandomLoss(float(values.get("rate", "0")), seed, mask, then)
    if name == "fixed-loss":
        values = _arguments(
            settings.udp_channel_transport_bindings_fixed_loss_args,
            {"term-id", "term-offset", "length"},
            "fixed-loss",
        )
        return GapLoss(int(values["term-id"]), int(values["term-offset"]), int(values["length"]), then=then)
    if name == "multi-gap-loss":
        values = _arguments(
            settings.udp_channel_transport_bindings_multi_gap_loss_args,
            {"term-id", "gap-radix", "gap-length", "total-gaps"},
            "multi-gap-loss",
        )
        radix = int(values["gap-radix"])
        return GapLoss(
            int(values["term-id"]), radix, int(values["gap-length"]), radix, int(values["total-gaps"]), then=then
        )
    raise ConfigurationError("unknown interceptor; choose loss, fixed-loss or multi-gap-loss")


def _arguments(text: str, known: set[str], name: str) -> dict[str, str]:
    """``key=value|key=value``; all keys must be there, but those of ``loss`` have defaults."""
    values = {}
    for part in filter(None, text.split("|")):
        key, equals, value = part.partition("=")
        if key not in known or not equals or not value:
            raise ConfigurationError(f"{part!r} must be KEY=VALUE with one of the keys {', '.join(sorted(known))}")
        values[key] = value
    if name != "loss" and (missing := known - values.keys()):
        raise ConfigurationError(f"missing {', '.join(sorted(missing))}")
    return values
