"""A look at serialised messages before protobuf makes an object of each of their fields."""

_MAX_VARINT_BYTES = 10


class TooManyFields(ValueError):
    """A message with more top-level fields than any of its kind has, or that is cut."""


def check_field_count(raw: bytes, limit: int) -> None:
    """Raise `TooManyFields` unless `raw` has at most `limit` top-level fields; costs no more than they do.

    An empty sub-message takes two bytes on the wire and a hundred in memory: 32 MiB of them would take a worker down.
    """
    position = 0
    for _ in range(limit):
        if position == len(raw):
            return
        tag, position = _varint(raw, position)
        match tag & 7:
            case 0:
                _, position = _varint(raw, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(raw, position)
                position += length
            case 5:
                position += 4
            case _:
                raise TooManyFields("not a message of this protocol")
    if position != len(raw):
        raise TooManyFields("too many fields, or cut")


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(raw[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, position + shift + 1
    raise TooManyFields("cut")
