"""`strongroom model`: what is in a model folder."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

model = typer.Typer(
    help="What is in a model folder.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


@model.callback()
def _group() -> None:
    """What is in a model folder."""


@model.command()
def manifest(
    folder: Annotated[Path, typer.Argument(help="Folder of the model.")],
) -> None:
    """Print the digest of a model and of each of its files, as JSON: the digest is what policies name.

    Exit codes: 0 printed, 1 not a model folder or not readable, 2 wrong usage.
    """
    from strongroom.launcher.errors import LaunchRefused
    from strongroom.launcher.model import check_model_folder, manifest_digest
    from strongroom.launcher.model import manifest as files_of

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done / max(total, 1):4.0%} of {total / 2**20:,.0f} MiB", end="", file=sys.stderr)  # noqa: T201

    try:
        check_model_folder(folder)
        files = files_of(folder, progress)
    except LaunchRefused as error:
        typer.echo(f"strongroom model manifest: {error}", err=True)
        raise typer.Exit(1) from None
    if sys.stderr.isatty():
        typer.echo(err=True)
    typer.echo(json.dumps({"digest": manifest_digest(files), "files": files}, indent=2))
