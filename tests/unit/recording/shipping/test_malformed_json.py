"""Objects of a store that are JSON, and not what Mainstem wrote: one error, whatever they hold."""

from __future__ import annotations

import json

import pytest

from mainstem.errors import RecordingError
from mainstem.recording.shipping.layout import manifest_name
from mainstem.recording.shipping.manifest import Manifest
from mainstem.recording.shipping.page_tree import PageRef, _decoded

ARCHIVE = "0123456789abcdef" * 2
WHOLE = Manifest(archive_id=ARCHIVE, number=3).encode()
REF = PageRef(0, 1024, "0/p.page", 5, 1, 0, 1, 0, 9, -1, -1, 1, 2048, 400)


def changed(**values: object) -> bytes:
    return json.dumps(json.loads(WHOLE) | values).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"",
        b"5",
        changed(time_ns=float("inf")),
        changed(number=float("nan")),
        changed(recordings=[{"descriptor": {}}]),
        changed(recordings=5),
        changed(shipper={"id": "x", "other": 1}),
        changed(pages=[5]),
    ],
    ids=["deep", "empty", "number", "infinite", "nan", "no fields", "no list", "other fields", "no object"],
)
def test_a_manifest_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        Manifest.decode(data, manifest_name(ARCHIVE, 3))


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{}", b"[]", b'{"level":1,"rows":5}', b'{"level":1,"rows":[[]]}'])
def test_a_page_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        _decoded(data, REF)
