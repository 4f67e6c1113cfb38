"""The strict protobuf reader: it agrees with the package protobuf, and refuses what can be read in two ways."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioner.bundle import protobuf
from captioner.bundle.protobuf import Field, ProtobufError, read_message

SCHEMA = {
    "Outer": {
        1: Field("count", "number"),
        2: Field("name"),
        3: Field("data", "bytes"),
        4: Field("inner", "message", message="Inner"),
        5: Field("names", repeated=True),
        6: Field("values", "numbers", repeated=True),
        7: Field("weight", "float"),
    },
    "Inner": {1: Field("count", "number")},
}


def read(data: bytes) -> dict:
    return read_message(data, SCHEMA, "Outer")


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"", {}),
        (b"\x08\x96\x01", {"count": 150}),  # the example of the protobuf documentation
        (b"\x12\x07testing", {"name": "testing"}),  # likewise
        (b"\x08" + b"\xff" * 9 + b"\x01", {"count": 2**64 - 1}),
        (b"\x22\x03\x08\x96\x01", {"inner": {"count": 150}}),
        (b"\x2a\x01a\x2a\x00", {"names": ["a", ""]}),
        (b"\x30\x01\x32\x02\x01\x02\x35\0\0\0\0\x31\0\0\0\0\0\0\0\0", {"values": True}),
    ],
)
def test_values_of_the_documentation_are_read(data, values):
    assert read(data) == values


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x08\x96\x81\x00", "more bytes than it needs"),
        (b"\x88\x00\x01", "more bytes than it needs"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x08\x01\x08\x02", r"Outer\.count occurs twice"),
        (b"\x22\x00\x22\x00", r"Outer\.inner occurs twice"),
        (b"\x40\x01", "field 8, which is not allowed"),
        (b"\x00\x01", "field 0, which is not allowed"),
        (b"\x0d\0\0\0\0", r"Outer\.count is stored as wire type 5"),
        (b"\x10\x01", r"Outer\.name is stored as wire type 0"),
        (b"\x0b", "no wire type 3"),
        (b"\x12\x05abc", "ends inside a value"),
        (b"\x12", "ends inside a number"),
        (b"\x08\x80", "ends inside a number"),
        (b"\x22\x03\x08\x96", "ends inside a value"),
        (b"\x12\x01\xff", "not UTF-8"),
    ],
)
def test_what_honest_writers_do_not_write_is_refused(data, problem):
    with pytest.raises(ProtobufError, match=problem):
        read(data)


def test_a_file_of_very_many_fields_is_refused(monkeypatch):
    monkeypatch.setattr(protobuf, "FIELD_LIMIT", 10)
    read(b"\x2a\x00" * 10)
    with pytest.raises(ProtobufError, match="more than 10 fields"):
        read(b"\x2a\x00" * 11)


@given(st.binary(max_size=40))
@settings(max_examples=2000, deadline=None)
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(ProtobufError):
        read(data)
