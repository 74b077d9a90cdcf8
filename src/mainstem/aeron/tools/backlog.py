"""How many bytes wait between the stages of a stream, and how much space is left before back pressure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.tools.streams import Client, Image, Publication, Stream, Subscriber

PUBLISHER = "publisher"
SENDER = "sender"
RECEIVER = "receiver"
SUBSCRIBER = "subscriber"
SPY = "spy"
RECORDING = "recording"  # made by an archive; the registration id is the recording's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a stream.

    ``backlog`` is how far this stage is behind the previous one. ``room`` is how far it can still advance before a limit or window
    stops it. Both are in bytes, or None if unknown.
    """

    kind: str
    registration_id: int
    position: int
    client: Client | None = None
    backlog: int | None = None
    room: int | None = None


def stages(stream: Stream) -> tuple[Stage, ...]:
    """Return the stages in the order in which a message passes through them.

    A receiver's backlog (bytes sent but not yet in order) is known only if sender and receiver share a driver.
    """
    steps: list[Stage] = []
    publication = stream.publication
    if publication is not None:
        steps += _publication(publication)
    for image in stream.images:
        steps += _image(image, publication)
    return tuple(steps)


def lag(position: int, steps: Sequence[Stage]) -> int:
    """Return how far the last of the stages is behind ``position``, the stream's first; a `Stage.backlog` is to the one before."""
    return max([0, *(position - step.position for step in steps)])


def stage_row(stage: Stage) -> dict[str, object]:
    return {
        "stage": stage.kind,
        "registration_id": stage.registration_id,
        "client": stage.client.shown if stage.client else None,
        "position": stage.position,
        "behind": stage.backlog,
        "room": stage.room,
    }


def _publication(publication: Publication) -> list[Stage]:
    own = publication.key.registration_id
    steps = [
        Stage(
            kind=PUBLISHER,
            registration_id=own,
            position=publication.position,
            client=publication.client,
            room=max(0, publication.limit - publication.position),
        )
    ]
    sent = publication.sender_position
    if sent is not None:
        room = None if publication.sender_limit is None else max(0, publication.sender_limit - sent)
        steps.append(
            Stage(
                kind=SENDER,
                registration_id=own,
                position=sent,
                backlog=max(0, publication.position - sent),
                room=room,
            )
        )
    kind = SUBSCRIBER if publication.is_ipc else SPY
    for each in publication.subscribers:
        steps += _follower(kind, each, publication.position, publication.window)
    return steps


def _image(image: Image, publication: Publication | None) -> list[Stage]:
    sent = publication.sender_position if publication else None
    lowest = min((s.position for s in image.subscribers), default=image.position)
    window = image.cubic_window or image.window
    steps = [
        Stage(
            kind=RECEIVER,
            registration_id=image.key.registration_id,
            position=image.position,
            backlog=max(0, (sent if sent is not None else image.high_water_mark) - image.position),
            room=None if window is None else max(0, lowest + window - image.high_water_mark),
        )
    ]
    for each in image.subscribers:
        steps += _follower(SUBSCRIBER, each, image.position, image.window)
    return steps


def _follower(kind: str, subscriber: Subscriber, reference: int, window: int | None) -> list[Stage]:
    backlog = max(0, reference - subscriber.position)
    steps = [
        Stage(
            kind=kind,
            registration_id=subscriber.registration_id,
            position=subscriber.position,
            client=subscriber.client,
            backlog=backlog,
            room=None if window is None else max(0, window - backlog),
        )
    ]
    if (recording := subscriber.recording) is not None:
        steps.append(
            Stage(
                kind=RECORDING,
                registration_id=recording.recording_id,
                position=recording.position,
                client=subscriber.client,
                backlog=max(0, subscriber.position - recording.position),
            )
        )
    return steps
