"""The command `strongroom`: finds sub-commands by entry point, and imports a part only when it is called."""

import difflib
import os
import sys
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

GROUP = "strongroom.commands"


class _Parts(TyperGroup):
    """Sub-commands are entry points of the group `strongroom.commands`, each loaded when it is named."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(_entry_points())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _entry_points().get(cmd_name)
        if entry is None:
            return None
        loaded = entry.load()
        if isinstance(loaded, typer.Typer):
            return get_command(loaded)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=cmd_name)(loaded)
        return get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in _entry_points():
            near = difflib.get_close_matches(args[0], _entry_points(), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(_entry_points()))}"
            ctx.fail(f"no sub-command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


app = typer.Typer(
    cls=_Parts, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"strongroom {version('strongroom')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Confidential inference: attested, sealed and salted LLM serving."""


def main() -> None:
    """Run the command line. A defect of ours is named by its kind: its text and its trace may quote a prompt."""
    # gRPC would tell a person's terminal about every connection that a peer closes.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        app()
    except ModuleNotFoundError as error:
        extras = "strongroom[launcher] on a server, strongroom[worker] for the engine"
        typer.echo(f"strongroom: this command needs the package {error.name}; install {extras}", err=True)
        sys.exit(1)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace else "unknown place"
        typer.echo(f"strongroom: internal error, {type(error).__name__} in {place}; please report it", err=True)
        sys.exit(70)
