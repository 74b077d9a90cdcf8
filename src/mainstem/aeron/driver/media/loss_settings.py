"""Loss generators from the settings that make a driver drop datagrams on purpose (docs/protocols/aeron.md, 24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.loss_generator import EVERY_TYPE, GapLoss, LossGenerator, RandomLoss
from mainstem.aeron.protocol.layouts import FrameType
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.driver.settings import DriverSettings


# Frame types that the debug settings call data. They call all others control.
DATA_TYPES = 1 << FrameType.PAD | 1 << FrameType.DATA | 1 << FrameType.SETUP


def incoming_loss(settings: DriverSettings) -> Callable[[int], LossGenerator] | None:
    """Return a factory of loss generators for incoming datagrams, or None if the settings configure no loss.

    Receivers drop incoming data, and senders drop incoming control frames. The factory takes a transport's number. Raises
    ConfigurationError.
    """
    return _loss_factory(
        settings.udp_channel_incoming_interceptors,
        settings,
        data=(settings.debug_receive_data_loss_rate, settings.debug_receive_data_loss_seed),
        control=(settings.debug_send_control_loss_rate, settings.debug_send_control_loss_seed),
    )


def outgoing_loss(settings: DriverSettings) -> Callable[[int], LossGenerator] | None:
    """Return a factory of loss generators for outgoing datagrams, or None if the settings configure no loss.

    Senders drop outgoing data, and receivers drop outgoing control frames. The factory takes a transport's number. Raises
    ConfigurationError.
    """
    return _loss_factory(
        settings.udp_channel_outgoing_interceptors,
        settings,
        data=(settings.debug_send_data_loss_rate, settings.debug_send_data_loss_seed),
        control=(settings.debug_receive_control_loss_rate, settings.debug_receive_control_loss_seed),
    )


def _loss_factory(
    interceptors: str, settings: DriverSettings, *, data: tuple[float, int], control: tuple[float, int]
) -> Callable[[int], LossGenerator] | None:
    """Return a function that makes a transport's loss generator from its number, or None if nothing is dropped.

    ``interceptors`` is a comma-separated list of ``loss``, ``fixed-loss`` and ``multi-gap-loss``. ``data`` and ``control`` are
    (rate, seed) pairs. Random loss adds the transport's number to the seed, so each transport drops different datagrams, but the
    same ones in every run.
    """
    random = [
        (rate, seed, mask) for (rate, seed), mask in ((data, DATA_TYPES), (control, EVERY_TYPE ^ DATA_TYPES)) if rate
    ]
    names = [name.strip() for name in interceptors.split(",") if name.strip()]
    for name in names:
        try:
            _make(name, settings, 0, None)
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from error
    if not names and not random:
        return None

    def make(number: int) -> LossGenerator:
        generator: LossGenerator | None = None
        for rate, seed, mask in random:
            generator = RandomLoss(rate, seed + number, mask, generator)
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
    """Parse ``key=value|key=value``. All known keys are required, except for ``loss``. Raises ConfigurationError."""
    values = {}
    for part in filter(None, text.split("|")):
        key, equals, value = part.partition("=")
        if key not in known or not equals or not value:
            raise ConfigurationError(f"{part!r} must be KEY=VALUE with one of the keys {', '.join(sorted(known))}")
        values[key] = value
    if name != "loss" and (missing := known - values.keys()):
        raise ConfigurationError(f"missing {', '.join(sorted(missing))}")
    return values
