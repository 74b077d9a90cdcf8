"""Recordings: streams on disk in Aeron Archive's own layout, written crash-safe and read by position."""

from mainstem.recording.catalog import RecordingDescriptor, read_catalog
from mainstem.recording.persistent.subscription import PersistentSubscription
from mainstem.recording.position_hold import PositionHold
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.recordings import Recordings, open_recording, open_recordings
from mainstem.recording.replay import SkippedRange, batches, messages, replay_onto
from mainstem.recording.scan import Scan
from mainstem.recording.verify import Fault, faults

__all__ = [
    "Fault",
    "PersistentSubscription",
    "PositionHold",
    "Recorder",
    "RecordingDescriptor",
    "RecordingReader",
    "Recordings",
    "Scan",
    "SkippedRange",
    "batches",
    "faults",
    "messages",
    "open_recording",
    "open_recordings",
    "read_catalog",
    "replay_onto",
]
