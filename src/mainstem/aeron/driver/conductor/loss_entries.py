"""The loss report's entries, one an image, made at its first gap (aeron-behaviour §9.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.publication_image import PublicationImage
    from mainstem.aeron.driver.resources import Resources


class Losses:
    """Records what was found missing; an image's entry is kept with the image. Nothing is recorded once the report is full."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    def record(self, image: PublicationImage, bytes_lost: int) -> None:
        """``bytes_lost`` more were found missing that were not reported before."""
        now_ms = self._resources.clock.epoch_ms()
        if image.loss_entry is not None:
            image.loss_entry.record(bytes_lost, now_ms=now_ms)
        else:
            image.loss_entry = self._resources.loss_report.create_entry(
                bytes_lost,
                now_ms=now_ms,
                session_id=image.session_id,
                stream_id=image.stream_id,
                channel=image.channel,
                source=image.source_identity,
            )
