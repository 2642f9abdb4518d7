"""The wire format of protocol buffers, read in place and without trust: every length is checked before it is used.

Format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
_FIXED_SIZE_BYTES = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """The bytes are not a well-formed message."""


class Wire:
    """Reads messages; `fields_left` bounds how many fields it will look at, and so its time and memory."""

    def __init__(self, fields_left: int) -> None:
        self._limit = fields_left
        self.fields_left = fields_left

    def fields(self, message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
        """Each field of `message`: its number, its wire type, and an unsigned integer or the bytes in place."""
        position, end = 0, len(message)
        while position < end:
            self._spend(1)
            tag, position = read_varint(message, position)
            number, wire_type = tag >> 3, tag & 7
            if number == 0:
                raise WireError("a field has the number 0")
            if wire_type == VARINT:
                value, position = read_varint(message, position)
                yield number, wire_type, value
                continue
            if wire_type == BYTES:
                size, position = read_varint(message, position)
            elif wire_type in _FIXED_SIZE_BYTES:
                size = _FIXED_SIZE_BYTES[wire_type]
            else:
                raise WireError(f"field {number} has the unknown wire type {wire_type}")
            if size > end - position:
                raise WireError(f"field {number} claims {size:,} bytes where {end - position:,} are left")
            yield number, wire_type, message[position : position + size]
            position += size

    def signed_varints(self, packed: memoryview) -> array[int]:
        """The int64 values packed in `packed`."""
        values, position, end = array("q"), 0, len(packed)
        while position < end:
            self._spend(1)
            value, position = read_varint(packed, position)
            values.append(to_signed(value))
        return values

    def _spend(self, count: int) -> None:
        self.fields_left -= count
        if self.fields_left < 0:
            raise WireError(f"it has more than {self._limit:,} fields")


def read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """The unsigned integer at `position`, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise WireError("it ends in the middle of a number")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise WireError("a number has more than 64 bits")
            return value, position
    raise WireError("a number has more than 64 bits")


def to_signed(value: int) -> int:
    """An unsigned 64-bit integer read as two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def as_bytes(wire_type: int, value: int | memoryview) -> memoryview:
    """`value` where the field must hold bytes, a text or a message."""
    if wire_type != BYTES or isinstance(value, int):
        raise WireError(f"a field has the wire type {wire_type} where bytes are expected")
    return value


def as_int(wire_type: int, value: int | memoryview) -> int:
    """`value` where the field must hold a signed integer."""
    if wire_type != VARINT or not isinstance(value, int):
        raise WireError(f"a field has the wire type {wire_type} where a number is expected")
    return to_signed(value)


def as_text(wire_type: int, value: int | memoryview) -> str:
    """`value` where the field must hold UTF-8."""
    try:
        return str(as_bytes(wire_type, value), "utf-8")
    except UnicodeDecodeError as error:
        raise WireError("a name is not UTF-8") from error
