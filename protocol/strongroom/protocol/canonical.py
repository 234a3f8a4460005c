"""Encodings with one form only: RFC 8785 JSON as it is signed and hashed, and unpadded base64url."""

import base64
import json
from typing import Any, NoReturn

import rfc8785


class NotCanonical(ValueError):
    """Bytes that are no JSON object, or not in its canonical form. The message quotes nothing of the input."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotCanonical("a member appears twice")
    return result


def _constant(_: str) -> NoReturn:
    raise NotCanonical("NaN and infinities are not JSON")


def encode(value: Any) -> bytes:
    """The canonical form of `value`."""
    return rfc8785.dumps(value)


def parse(raw: bytes) -> dict[str, Any]:
    """Parse an object strictly, in whatever form; raises `NotCanonical` for duplicate members, NaN and infinities."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except NotCanonical:
        raise
    except (ValueError, RecursionError) as error:
        raise NotCanonical("not JSON in UTF-8, or too deeply nested") from error
    if not isinstance(value, dict):
        raise NotCanonical("not a JSON object")
    return value


def decode(raw: bytes) -> dict[str, Any]:
    """Parse a canonical object; raises `NotCanonical` for duplicates and for any other encoding of it."""
    value = parse(raw)
    try:
        again = rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:
        raise NotCanonical("a number is out of range, or it is too deeply nested") from error
    if again != raw:
        raise NotCanonical("the encoding is not the canonical one (RFC 8785)")
    return value


def base64url(data: bytes) -> str:
    """Unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_base64url(text: str) -> bytes:
    """Decode unpadded base64url; the caller has checked the alphabet. Raises `ValueError`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
