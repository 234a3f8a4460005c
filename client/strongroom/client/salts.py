"""Cache salts on the client's side: a fresh one for every request, or one from a file."""

import json
import os
import stat
from pathlib import Path

from strongroom.client.errors import ClientError
from strongroom.protocol.cache import check_cache_salt, new_cache_salt
from strongroom.protocol.errors import WeakSalt
from strongroom.protocol.v1.strongroom_pb2 import CacheProfile


class SaltFileRefused(ClientError):
    """A salt file that is missing, readable by others, or does not hold a good salt."""


def read_salt_file(path: Path) -> str:
    """The salt in `path`, which only its owner may read; raises `SaltFileRefused`, never quoting it."""
    try:
        # Not blocking: a named pipe must be refused, not waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno())
            if not stat.S_ISREG(mode.st_mode) or mode.st_mode & 0o077 or mode.st_uid != os.geteuid():
                raise SaltFileRefused(f"{path} must be a file that only you can read: chmod 600 {path}")
            content = file.read(4096)
    except OSError as error:
        raise SaltFileRefused(f"cannot read the salt file {path}: {error.strerror}") from error
    try:
        return check_cache_salt(content.decode("ascii").strip())
    except UnicodeDecodeError as error:
        raise SaltFileRefused(f"the salt file {path} is not text") from error
    except WeakSalt as error:
        raise SaltFileRefused(f"the salt file {path}: {error}") from error


class BodyRefused(ClientError):
    """A request body that is not a JSON object, so that no salt can be put into it."""


class Salter:
    """Puts a salt into every body: the body's own, else the configured one, else a fresh one of 256 bits."""

    def __init__(self, salt: str | None = None) -> None:
        self._salt = salt

    def salted(self, raw: bytes) -> tuple[bytes, CacheProfile]:
        """The body with a salt, and what the cache may do with its blocks. Raises `BodyRefused`.

        A one-off salt leaves `reuse` unset, so that its blocks never enter a tier.
        """
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BodyRefused("the request body is not JSON") from error
        if not isinstance(body, dict):
            raise BodyRefused("the request body must be a JSON object")
        reuse = True
        if body.get("cache_salt") is None:
            reuse = self._salt is not None
            body["cache_salt"] = self._salt or new_cache_salt(os.urandom)
        try:
            return json.dumps(body, separators=(",", ":")).encode("ascii"), CacheProfile(reuse=reuse)
        except RecursionError as error:
            raise BodyRefused("the request body is too deeply nested") from error
