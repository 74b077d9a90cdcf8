"""Reduce several samples of a directory to one diagnosis per stream: why it is stalled, since when, and the evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from mainstem.aeron.tools.rules import IMAGE_RULES, PUBLICATION_RULES, SILENT_MS, Cause
from mainstem.aeron.tools.stream_state import ImageStatus, PublicationStatus
from mainstem.aeron.tools.streams import Image, Publication, group_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.aeron.loss_report import LossEntry
    from mainstem.aeron.tools.snapshot import Snapshot
    from mainstem.aeron.tools.streams import Client

PUBLICATION = "publication"
IMAGE = "image"
ON_AND_OFF = "on and off"
STALLED_SHARE = 4  # a stream that is stalled in a quarter of the samples or more counts as stalled


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One sample of one publication or image."""

    rule: str
    cause: Cause
    sentence: str
    epoch_ms: int
    figures: dict[str, int]
    silent_since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one publication or image.

    ``samples`` maps each rule to the number of samples in which it applied. ``since_ms`` (epoch) is the first sample of the final,
    uninterrupted run in which the rule applied, or the first sample in which it applied if it came and went, or a recorded time;
    ``since_basis`` says which. ``not_before_ms`` is when the log was created.
    """

    kind: str
    registration_id: int
    session_id: int
    stream_id: int
    channel: str
    rule: str
    cause: Cause
    sentence: str
    figures: dict[str, int]
    samples: dict[str, int]
    since_ms: int | None
    since_basis: str
    not_before_ms: int | None

    @property
    def is_stalled(self) -> bool:
        return self.cause is not Cause.NONE

    @property
    def agreeing(self) -> int:
        return self.samples[self.rule]

    @property
    def total(self) -> int:
        return sum(self.samples.values())


def diagnose(snapshots: Sequence[Snapshot], losses: Sequence[LossEntry] = ()) -> tuple[Diagnosis, ...]:
    """Diagnose each publication and image of the last snapshot, using all snapshots in chronological order.

    ``losses`` is the loss report, which dates gaps. One snapshot can show a full window or a missing receiver; it takes two or more
    to show movement.
    """
    observations: dict[tuple[str, int], list[Observation]] = {}
    latest: dict[tuple[str, int], Publication | Image] = {}
    previous: Snapshot | None = None
    before: dict[tuple[str, int], Publication | Image] = {}
    for snapshot in snapshots:
        latest = {}
        for stream in group_streams(snapshot):
            images = []
            for image in stream.images:
                key = (IMAGE, image.key.registration_id)
                then = before.get(key)
                status = ImageStatus(snapshot, image, then if isinstance(then, Image) else None)
                images.append(status)
                latest[key] = image
                observations.setdefault(key, []).append(_observe_image(status))
            if (publication := stream.publication) is not None:
                key = (PUBLICATION, publication.key.registration_id)
                then = before.get(key)
                own = PublicationStatus(
                    snapshot, publication, then if isinstance(then, Publication) else None, tuple(images), previous
                )
                latest[key] = publication
                observations.setdefault(key, []).append(_observe_publication(own))
        previous, before = snapshot, latest
    in_order = sorted(latest, key=lambda k: (latest[k].key.stream_id, latest[k].key.session_id, k[0] == IMAGE, k[1]))
    diagnoses = (_conclude(kind, latest[kind, own], observations[kind, own]) for kind, own in in_order)
    return tuple(_dated_by_report(diagnosis, losses) for diagnosis in diagnoses)


def diagnosis_row(diagnosis: Diagnosis) -> dict[str, object]:
    return {"stalled": diagnosis.is_stalled, **asdict(diagnosis)}


def _observe_publication(status: PublicationStatus) -> Observation:
    rule, sentence = PUBLICATION_RULES.decide(status)
    publication = status.publication
    culprit = None
    if rule.cause is Cause.SPY and status.slowest:
        culprit = status.slowest.client
    elif rule.cause in (Cause.SLOW_SUBSCRIBER, Cause.DISK) and status.reader:
        culprit = status.reader.client
    figures = {
        "pub_pos": publication.position,
        "pub_lmt": publication.limit,
        "window": publication.window,
        "snd_pos": publication.sender_position,
        "snd_lmt": publication.sender_limit,
        "snd_bpe": publication.back_pressure_events,
        "naks_received": publication.naks,
        "receivers": publication.receivers,
        "destinations": publication.destinations,
        "backlog": status.backlog,
        "slowest_sub_pos": status.slowest.position if status.slowest else None,
    }
    return Observation(
        rule=rule.name,
        cause=rule.cause,
        sentence=f"{publication.purpose}: {sentence}" if publication.purpose else sentence,
        epoch_ms=status.snapshot.epoch_ms,
        figures={name: value for name, value in figures.items() if value is not None},
        silent_since_ms=_silent_since(status.snapshot, culprit),
    )


def _observe_image(status: ImageStatus) -> Observation:
    rule, sentence = IMAGE_RULES.decide(status)
    image = status.image
    culprit = status.slowest.client if status.slowest and rule.cause in (Cause.SLOW_SUBSCRIBER, Cause.DISK) else None
    figures = {
        "rcv_hwm": image.high_water_mark,
        "rcv_pos": image.position,
        "slowest_sub_pos": status.slowest.position if status.slowest else None,
        "window": image.window,
        "cubic_window": image.cubic_window,
        "naks_sent": image.naks,
        "unread": status.unread,
        "missing": status.missing,
    }
    return Observation(
        rule=rule.name,
        cause=rule.cause,
        sentence=sentence,
        epoch_ms=status.snapshot.epoch_ms,
        figures={name: value for name, value in figures.items() if value is not None},
        silent_since_ms=_silent_since(status.snapshot, culprit),
    )


def _silent_since(snapshot: Snapshot, culprit: Client | None) -> int | None:
    if culprit is None or culprit.heartbeat_ms <= 0 or snapshot.epoch_ms - culprit.heartbeat_ms <= SILENT_MS:
        return None
    return culprit.heartbeat_ms


def _conclude(kind: str, subject: Publication | Image, observations: list[Observation]) -> Diagnosis:
    if len(observations) > 1 and observations[0].cause is Cause.NONE:
        observations = observations[1:]  # the first sample cannot show movement
    samples = Counter(o.rule for o in observations)
    stalled = Counter(o.rule for o in observations if o.cause is not Cause.NONE)
    chosen = (stalled if stalled.total() * STALLED_SHARE >= len(observations) else samples) if stalled else samples
    most = max(chosen.values())
    rule = next(o.rule for o in reversed(observations) if chosen[o.rule] == most)
    last = next(o for o in reversed(observations) if o.rule == rule)
    since, basis = _since(observations, last)
    key = subject.key
    return Diagnosis(
        kind=kind,
        registration_id=key.registration_id,
        session_id=key.session_id,
        stream_id=key.stream_id,
        channel=key.channel,
        rule=rule,
        cause=last.cause,
        sentence=last.sentence,
        figures=last.figures,
        samples=dict(samples),
        since_ms=since,
        since_basis=basis,
        not_before_ms=subject.log.created_ms if subject.log else None,
    )


def _dated_by_report(diagnosis: Diagnosis, losses: Sequence[LossEntry]) -> Diagnosis:
    if diagnosis.cause is not Cause.LOSS or diagnosis.since_ms is None:
        return diagnosis
    own = (diagnosis.session_id, diagnosis.stream_id)
    observed = [e.last_observation_ms for e in losses if (e.session_id, e.stream_id) == own]
    earlier = [ms for ms in observed if ms < diagnosis.since_ms]
    if not earlier or len(earlier) < len(observed):
        return diagnosis
    return replace(diagnosis, since_ms=max(earlier), since_basis="the loss report's last observation")


def _since(observations: list[Observation], last: Observation) -> tuple[int | None, str]:
    if last.cause is Cause.NONE:
        return None, ""
    if last.silent_since_ms is not None:
        return last.silent_since_ms, "its client's last heartbeat"
    matching = [o.epoch_ms for o in observations if o.rule == last.rule]
    if any(o.rule != last.rule for o in observations if o.epoch_ms >= matching[0]):
        return matching[0], ON_AND_OFF
    if observations[0].rule == last.rule:
        return matching[0], "the first sample: it may be longer"
    return matching[0], "the first sample that shows it"
