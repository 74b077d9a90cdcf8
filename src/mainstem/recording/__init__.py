"""Recordings: streams on disk in Aeron Archive's layout, written crash-safely and read by position."""

from mainstem.aeron.client.persistent_subscription import PersistentSubscription
from mainstem.recording.catalog import RecordingDescriptor, read_catalog
from mainstem.recording.reader import RecordingReader
from mainstem.recording.recorder import Recorder
from mainstem.recording.recorder_slot import RecorderSlot
from mainstem.recording.recordings import Recordings, open_recording, open_recordings
from mainstem.recording.replayer import replay
from mainstem.recording.rows.batches import SkippedRange, batches, messages
from mainstem.recording.scan import Scan
from mainstem.recording.verify_recordings import Problem, find_problems

__all__ = [
    "PersistentSubscription",
    "Problem",
    "Recorder",
    "RecorderSlot",
    "RecordingDescriptor",
    "RecordingReader",
    "Recordings",
    "Scan",
    "SkippedRange",
    "batches",
    "find_problems",
    "messages",
    "open_recording",
    "open_recordings",
    "read_catalog",
    "replay",
]
