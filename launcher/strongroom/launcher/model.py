"""The model folder: is it one, and what is its digest."""

import concurrent.futures
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from strongroom.launcher.errors import LaunchRefused
from strongroom.protocol import canonical

_BLOCK_BYTES = 8 * 1024 * 1024
# Pickled weights can run code when they are loaded; Python files are remote code.
_REFUSED_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".py")


def check_model_folder(folder: Path) -> None:
    """Raise `LaunchRefused` unless `folder` looks like a model in the Hugging Face layout, with safe weights."""
    what_to_do = "give --model the folder of a model with config.json, a tokenizer and *.safetensors"
    if not folder.is_dir():
        raise LaunchRefused(f"{folder} is not a folder; {what_to_do}")
    if not (folder / "config.json").is_file():
        raise LaunchRefused(f"{folder} has no config.json, so it is not a model; {what_to_do}")
    if not any(folder.glob("*.safetensors")):
        raise LaunchRefused(f"{folder} has no *.safetensors; {what_to_do}")
    refused = sorted(p.name for p in _files(folder) if p.suffix in _REFUSED_SUFFIXES)
    if refused:
        raise LaunchRefused(
            f"{folder} holds {', '.join(refused[:5])}: pickled weights and code are refused; remove them"
        )


def _files(folder: Path) -> list[Path]:
    """Every file below `folder`, sorted, under each of its names; links are followed, as the engine would."""
    found: list[Path] = []

    def unreadable(error: OSError) -> None:
        raise LaunchRefused(f"cannot read {error.filename}: {error.strerror}") from error

    for place, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        # A link to a folder that holds it would never end; any other second name is one more way in.
        above = {os.path.realpath(place), *map(os.path.realpath, Path(place).parents)}
        folders[:] = [name for name in folders if os.path.realpath(Path(place, name)) not in above]
        found += [Path(place, name) for name in names]
    for path in found:
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError as error:
            raise LaunchRefused(f"{folder} holds a file whose name is not UTF-8: {str(path)!a}; rename it") from error
    return sorted(path for path in found if path.is_file())


def manifest(folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by relative path; links are followed.

    `progress` is called with bytes done and bytes in all. Raises `LaunchRefused` for a file that cannot be read.
    """
    files = _files(folder)
    total = sum(p.stat().st_size for p in files)
    done = 0

    def digest(path: Path) -> str:
        nonlocal done
        state = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                state.update(block)
                done += len(block)
                progress(done, total)
        return state.hexdigest()

    try:
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            return {p.relative_to(folder).as_posix(): d for p, d in zip(files, pool.map(digest, files), strict=True)}
    except OSError as error:
        raise LaunchRefused(f"cannot read {error.filename}: {error.strerror}") from error


def manifest_digest(files: dict[str, str]) -> str:
    """The value of `claims.model.digest`: SHA-256 over RFC 8785 JSON {"files": {path: hex digest}}."""
    return "sha256:" + hashlib.sha256(canonical.encode({"files": files})).hexdigest()
