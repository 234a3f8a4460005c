"""`strongroom serve`: run the launcher."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Tee(StrEnum):
    """Choices of `--tee`."""

    AUTO = "auto"
    SEV_SNP = "sev-snp"
    TDX = "tdx"
    AZURE_VTPM = "azure-vtpm"
    SIMULATED = "simulated"


def serve(
    model: Annotated[
        Path | None, typer.Option(help="Folder of the model: config.json, tokenizer, *.safetensors.")
    ] = None,
    served_model_name: Annotated[str | None, typer.Option(help="The name that clients use.")] = None,
    tee: Annotated[Tee | None, typer.Option(help="Where evidence comes from. [default: auto]")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Sealed gRPC. [default: 0.0.0.0:8443]")
    ] = None,
    report_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Report, health, metrics. [default: 0.0.0.0:8444]")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with all settings; flags override it.")] = None,
    verbose: Annotated[bool, typer.Option(help="Show what the engine prints while it starts.")] = False,
) -> None:
    """Prove what runs here, boot the engine, and serve sealed requests until SIGTERM.

    Exit codes: 0 stopped on request, 1 refused to start or gave up, 2 wrong usage.
    """
    from strongroom.launcher.config import load_config
    from strongroom.launcher.errors import LaunchRefused
    from strongroom.launcher.lifecycle import Launcher

    flags = {
        "model": model,
        "served_model_name": served_model_name,
        "tee": tee.value if tee else None,
        "listen": listen,
        "report_listen": report_listen,
    }
    try:
        loaded = load_config(config, flags)
        asyncio.run(Launcher(loaded, verbose=verbose).run())
    except LaunchRefused as error:
        typer.echo(f"strongroom serve: {error}", err=True)
        raise typer.Exit(1) from None
