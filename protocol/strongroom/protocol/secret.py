"""Values that must not be printed by accident."""


class Secret:
    """Bytes whose `repr`, `str` and pickle give nothing away. `expose()` is the only way to the value.

    Python cannot erase what it copied: this keeps secrets out of logs and crash dumps, not out of memory.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def expose(self) -> bytes:
        """The bytes themselves."""
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(redacted)"

    def __reduce__(self) -> str:
        raise TypeError(f"a {type(self).__name__} is never pickled")
