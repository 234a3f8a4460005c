"""The model folder: what is refused, and that the digest changes with every byte and name below it."""

import os
import pathlib
from collections.abc import Callable

import pytest

from strongroom.launcher.errors import LaunchRefused
from strongroom.launcher.model import check_model_folder, manifest, manifest_digest


def digest_of(folder: pathlib.Path) -> str:
    return manifest_digest(manifest(folder))


def test_a_folder_with_safe_weights_passes(model_folder: pathlib.Path) -> None:
    check_model_folder(model_folder)


@pytest.mark.parametrize(
    ("removed", "named"), [("config.json", "config.json"), ("model.safetensors", r"\*\.safetensors")]
)
def test_a_folder_without_an_essential_file_is_refused(model_folder: pathlib.Path, removed: str, named: str) -> None:
    (model_folder / removed).unlink()
    with pytest.raises(LaunchRefused, match=f"has no {named}.*--model"):
        check_model_folder(model_folder)


def test_what_is_no_folder_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, tmp_path / "missing"):
        with pytest.raises(LaunchRefused, match="is not a folder"):
            check_model_folder(path)


@pytest.mark.parametrize(
    "name",
    [
        "pytorch_model.bin",
        "consolidated.00.pth",
        "model.pt",
        "optimizer.pkl",
        "last.ckpt",
        "modeling_tiny.py",
        "nested/modeling.py",
        "nested/deep/model.bin",
        ".hidden.py",
    ],
)
def test_pickled_weights_and_code_are_refused_by_name(model_folder: pathlib.Path, name: str) -> None:
    file = model_folder / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.touch()
    with pytest.raises(LaunchRefused, match=file.name):
        check_model_folder(model_folder)


def test_code_behind_a_link_to_a_folder_is_refused(model_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "modeling.py").touch()
    (model_folder / "linked").symlink_to(outside)
    with pytest.raises(LaunchRefused, match=r"modeling\.py"):
        check_model_folder(model_folder)


CHANGES: dict[str, Callable[[pathlib.Path], object]] = {
    "a changed byte": lambda f: (f / "model.safetensors").write_bytes(b"weighty"),
    "an appended byte": lambda f: (f / "model.safetensors").write_bytes(b"weights\0"),
    "a changed byte further down": lambda f: (f / "nested" / "extra.json").write_bytes(b"extrb"),
    "a renamed file": lambda f: (f / "tokenizer.json").rename(f / "tokens.json"),
    "a moved file": lambda f: (f / "tokenizer.json").rename(f / "nested" / "tokenizer.json"),
    "two files exchanged": lambda f: [
        (f / "tokenizer.json").write_bytes(b"weights"),
        (f / "model.safetensors").write_bytes(b"tokens"),
    ],
    "an added file": lambda f: (f / "chat_template.jinja").touch(),
    "a hidden file": lambda f: (f / ".cache").touch(),
    "a removed file": lambda f: (f / "tokenizer.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_digest_changes_with(model_folder: pathlib.Path, change: str) -> None:
    before = digest_of(model_folder)
    CHANGES[change](model_folder)
    assert digest_of(model_folder) != before


def test_the_digest_depends_on_nothing_else(model_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    before = digest_of(model_folder)
    os.utime(model_folder / "config.json", (1, 1))
    (model_folder / "config.json").chmod(0o600)
    assert digest_of(model_folder.rename(tmp_path / "elsewhere")) == before


def test_the_manifest_has_every_file_by_its_relative_path(model_folder: pathlib.Path) -> None:
    files = manifest(model_folder)
    assert sorted(files) == ["config.json", "model.safetensors", "nested/extra.json", "tokenizer.json"]
    # SHA-256 of "{}".
    assert files["config.json"] == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_the_digest_is_a_published_value() -> None:
    """printf '{"files":{"a":"00"}}' | sha256sum"""
    assert manifest_digest({"a": "00"}) == "sha256:36a8749928fa77eba9eaf5c8bd0f0796935dc7886327ed13f38178ebdbb79382"


def test_links_to_files_are_followed(model_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The layout of the Hugging Face cache: snapshots are links to blobs."""
    blob = tmp_path / "blob"
    (model_folder / "model.safetensors").rename(blob)
    (model_folder / "model.safetensors").symlink_to(blob)
    before = digest_of(model_folder)
    blob.write_bytes(b"weighty")
    assert digest_of(model_folder) != before


def test_links_to_folders_are_followed(model_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The engine opens what lies behind them, so the digest must cover it."""
    (model_folder / "nested").rename(tmp_path / "outside")
    (model_folder / "nested").symlink_to(tmp_path / "outside")
    assert "nested/extra.json" in manifest(model_folder)


def test_a_folder_with_two_names_is_in_the_manifest_under_both(model_folder: pathlib.Path) -> None:
    """Else the digest would hide the second name, and depend on the order in which the file system lists them."""
    before = digest_of(model_folder)
    for name in ("another", "zzz"):
        (model_folder / name).symlink_to(model_folder / "nested")
    assert {"nested/extra.json", "another/extra.json", "zzz/extra.json"} <= set(manifest(model_folder))
    assert digest_of(model_folder) != before


def test_a_loop_of_links_ends(model_folder: pathlib.Path) -> None:
    (model_folder / "nested" / "up").symlink_to(model_folder)
    assert "config.json" in manifest(model_folder)


def test_progress_counts_every_byte(model_folder: pathlib.Path) -> None:
    seen: list[tuple[int, int]] = []
    manifest(model_folder, lambda done, total: seen.append((done, total)))
    total = sum(p.stat().st_size for p in model_folder.rglob("*") if p.is_file())
    assert max(seen) == (total, total)


def test_a_file_that_cannot_be_read_is_refused_by_name(model_folder: pathlib.Path) -> None:
    (model_folder / "tokenizer.json").unlink()
    # Reading it fails, whoever asks.
    (model_folder / "tokenizer.json").symlink_to("/proc/self/mem")
    with pytest.raises(LaunchRefused, match=r"cannot read"):
        manifest(model_folder)


def test_a_name_that_is_not_utf_8_is_refused(model_folder: pathlib.Path) -> None:
    (model_folder / os.fsdecode(b"\xff.json")).touch()
    with pytest.raises(LaunchRefused):
        digest_of(model_folder)
