"""`HOST:PORT` as every command takes it, IPv6 hosts in brackets."""

import dataclasses
import re

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/\s]+)):(?P<port>[0-9]{1,5})", re.ASCII)


class BadAddress(ValueError):
    """Not `HOST:PORT`."""


@dataclasses.dataclass(frozen=True)
class Address:
    """A host name or IP address, and a TCP port; port 0 lets the system choose where one listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `HOST:PORT`; raises `BadAddress` with an example."""
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise BadAddress(f"{text!r} is not HOST:PORT, for example 127.0.0.1:8443 or [::1]:8443")
        return cls(match["v6"] or match["host"], int(match["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
