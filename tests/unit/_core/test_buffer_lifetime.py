"""The lifetime of the memory under an AtomicBuffer."""

from __future__ import annotations

import gc
import mmap
import sys
import weakref

import pytest

from mainstem._core.memory.buffer import AtomicBuffer


class Holder:
    """An object that refers to itself, as an agent and its conductor do."""


def test_a_buffer_held_by_a_reference_cycle_is_collected_quietly(monkeypatch):
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    holder = Holder()
    holder.myself = holder
    holder.buffer = AtomicBuffer(mmap.mmap(-1, 4096))
    holder.part = AtomicBuffer(holder.buffer, 64, 64)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None
    assert complaints == []


def test_a_closed_buffer_lets_its_mapping_close():
    mapping = mmap.mmap(-1, 4096)
    buffer = AtomicBuffer(mapping)
    with pytest.raises(BufferError):
        mapping.close()
    buffer.close()
    mapping.close()
