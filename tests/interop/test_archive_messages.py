"""Aeron Archive messages checked against the reference's schema, and against its codecs in both directions."""

from __future__ import annotations

import zipfile

import pytest
from tests.support import java
from tests.support.archive_messages import PRIMITIVES, camel, sample
from tests.support.waiting import STALL_S

from mainstem.archive.messages import TYPES, decode
from mainstem.codecs.sbe import SbeSchema

pytestmark = [pytest.mark.interop]
CONNECT_REQUEST = 2  # schema 14 dropped it


def test_the_table_is_the_schema_of_the_reference() -> None:
    java.require_java()
    xml = zipfile.ZipFile(java.jar()).read("archive/aeron-archive-codecs.xml").decode()
    messages = SbeSchema(xml).messages
    assert {each.template_id for each in TYPES} == messages.keys() - {CONNECT_REQUEST}
    for each in TYPES:
        block = messages[each.template_id]
        fields = [(camel(field.name), field.offset, PRIMITIVES[field.code]) for field in each.fields]
        assert (each.name, each.block_length) == (block.name, block.length)
        assert fields == [(name, offset, kind.primitive) for name, offset, kind in block.fields]
        assert [camel(name) for name in each.data] == [name for name, _ in block.data]


def test_java_and_mainstem_decode_each_others_messages() -> None:
    java.require_java()
    lines = []
    for each in TYPES:
        for start in (3, 4):
            values = sample(each, start=start)
            names = [camel(name) + ("" if each.data.get(name, True) else ":hex") for name in values]
            texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values.values()]
            pairs = [f"{name}={text}" for name, text in zip(names, texts, strict=True) if name != "reserved"]
            lines.append("\t".join(("encode", each.name, *pairs)))
            lines.append("\t".join(("decode", each.name, each.encode(**values).hex(), *names)))
    with java.start("ArchiveCodecs", stderr=None) as program:
        output, _ = program.communicate("\n".join(lines) + "\n", timeout=STALL_S)
    answers = iter(output.splitlines())
    for each in TYPES:
        for start in (3, 4):
            values = sample(each, start=start)
            message = decode(bytes.fromhex(next(answers)))
            assert message.values == (values | {"reserved": 0} if "reserved" in values else values)
            texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values.values()]
            assert next(answers).split("\t") == texts
