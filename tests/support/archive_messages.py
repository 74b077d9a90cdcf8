"""Aeron Archive messages whose values reveal the position of each field, and their schema as SBE XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainstem.archive.messages import MessageType

ENUMS = {"code", "source_location", "auto_stop", "apply_stream_id", "signal", "state"}
PRIMITIVES = {"b": "int8", "i": "int32", "q": "int64"}


def camel(name: str) -> str:
    """Return a field's name in Aeron's schema."""
    return re.sub("_(.)", lambda match: match[1].upper(), name)


def sample(message_type: MessageType, *, start: int = 3) -> dict[str, Any]:
    """Return a value for every field: all different where possible, with both signs."""
    values: dict[str, Any] = {}
    for number, field in enumerate(message_type.fields, start):
        if field.name in ENUMS:
            values[field.name] = number % 2
        elif field.length == 1:
            values[field.name] = number
        else:
            values[field.name] = (-1) ** number * ((1 << (8 * field.length - 2)) + number)
    for number, (name, is_text) in enumerate(message_type.data.items()):
        values[name] = f"aeron:ipc?alias={name}" if is_text else bytes(range(number, 40))
    return values


def schema_xml(types: tuple[MessageType, ...]) -> str:
    """Return the table of messages as an SBE schema."""
    messages = []
    for each in types:
        lines = [
            f'<field name="{field.name}" id="1" type="{PRIMITIVES[field.code]}" offset="{field.offset}"/>'
            for field in each.fields
        ]
        lines += [f'<data name="{name}" id="2" type="data"/>' for name in each.data]
        head = f'<message name="{each.name}" id="{each.template_id}" blockLength="{each.block_length}">'
        messages.append(f"{head}{''.join(lines)}</message>")
    header = "".join(
        f'<type name="{name}" primitiveType="uint16"/>' for name in ("blockLength", "templateId", "schemaId", "version")
    )
    return f"""<messageSchema package="t" id="101" version="14" byteOrder="littleEndian"><types>
<composite name="messageHeader">{header}</composite>
<composite name="data"><type name="length" primitiveType="uint32"/>
<type name="varData" primitiveType="uint8" length="0"/></composite>
</types>{"".join(messages)}</messageSchema>"""
