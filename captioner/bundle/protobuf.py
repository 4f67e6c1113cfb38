"""A strict reader of protobuf, the encoding of ONNX graphs. It needs no packages and decodes nothing that it can skip.

A message is a row of fields. Each field begins with a tag, number << 3 | wire type, and the wire type says how the
value is stored:

    0  varint   7 bits per byte, lowest first; the highest bit of a byte says that another byte follows
    1  8 bytes
    2  a varint n, then n bytes: text, bytes, another message, or numbers in one piece
    5  4 bytes

Fields come in any order, and what the schema calls repeated comes any number of times. A value that is not repeated may
come again, and the last one counts: so two readers can disagree about what a file says. This reader refuses whatever
honest writers don't write: a second value, a field that the schema doesn't list, another wire type, a number in more
bytes than it needs, text that is not UTF-8. What it accepts, every reader understands in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

FIELD_LIMIT = 1_000_000  # fields of a file; more than any graph has, and read in a few seconds

Kind = Literal["number", "numbers", "float", "bytes", "text", "message"]
_WIRE_TYPES: dict[Kind, tuple[int, ...]] = {
    "number": (0,),
    "numbers": (0, 1, 2, 5),  # each in a field of its own, or all in one; skipped
    "float": (5,),
    "bytes": (2,),
    "text": (2,),
    "message": (2,),
}
_FIXED = {1: 8, 5: 4}  # bytes


class ProtobufError(ValueError):
    """The bytes are not a message of the schema, or one that honest writers don't write."""


@dataclass(frozen=True)
class Field:
    """One field of a message."""

    name: str
    kind: Kind = "text"
    repeated: bool = False
    message: str = ""  # the name of the message that it holds


Schema = Mapping[str, Mapping[int, Field]]  # the fields of each message, by number


def read_message(data: bytes, schema: Schema, message: str) -> dict[str, Any]:
    """The fields by name: lists where they are repeated, dicts for messages, memoryviews for bytes.

    Of `numbers` only the presence is noted. A field that does not occur is not in the dict.
    """
    return _Reader(schema).message(memoryview(data), message)


class _Reader:
    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.fields = 0  # read so far

    def message(self, data: memoryview, name: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        known = self.schema[name]
        for number, wire_type, raw in self.raw_fields(data):
            field = known.get(number)
            if field is None:
                raise ProtobufError(f"{name} has a field {number}, which is not allowed")
            if wire_type not in _WIRE_TYPES[field.kind]:
                raise ProtobufError(f"{name}.{field.name} is stored as wire type {wire_type}")
            if field.kind == "numbers":
                values[field.name] = True
                continue
            value = self.value(field, raw, f"{name}.{field.name}")
            if field.repeated:
                values.setdefault(field.name, []).append(value)
            elif field.name in values:
                raise ProtobufError(f"{name}.{field.name} occurs twice")
            else:
                values[field.name] = value
        return values

    def value(self, field: Field, raw: Any, where: str) -> Any:
        if field.kind == "message":
            return self.message(raw, field.message)
        if field.kind == "text":
            try:
                return str(raw, "utf-8")
            except UnicodeDecodeError:
                raise ProtobufError(f"{where} is not UTF-8") from None
        return raw

    def raw_fields(self, data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
        """Number, wire type and value of every field: a number for a varint, else the bytes of the value."""
        at, end = 0, len(data)
        while at < end:
            self.fields += 1
            if self.fields > FIELD_LIMIT:
                raise ProtobufError(f"more than {FIELD_LIMIT:,} fields")
            tag, at = _varint(data, at)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == 0:
                value, at = _varint(data, at)
                yield number, wire_type, value
                continue
            if wire_type == 2:
                size, at = _varint(data, at)
            elif wire_type in _FIXED:
                size = _FIXED[wire_type]
            else:
                raise ProtobufError(f"there is no wire type {wire_type}")
            if size > end - at:
                raise ProtobufError("the file ends inside a value")
            yield number, wire_type, data[at : at + size]
            at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number in its shortest form, and the position after it."""
    value = 0
    for count in range(10):  # 64 bits
        if at + count >= len(data):
            raise ProtobufError("the file ends inside a number")
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if count and not byte:
                raise ProtobufError("a number takes more bytes than it needs")
            if value >= 1 << 64:
                break
            return value, at + count + 1
    raise ProtobufError("a number has more than 64 bits")
