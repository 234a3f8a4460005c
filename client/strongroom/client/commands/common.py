"""What the client's commands share: reading their options, and turning failures into exit codes."""

import contextlib
from collections.abc import Iterator

import typer

from strongroom.attestation.errors import AppraisalRefused, PolicyError
from strongroom.client.errors import ClientError, ExitCode, Unreachable
from strongroom.client.render import appraisal_table, print_error
from strongroom.protocol.address import Address, BadAddress


@contextlib.contextmanager
def reported(command: str) -> Iterator[None]:
    """Print what went wrong, without a trace, and exit with the code that names its kind."""
    try:
        yield
    except PolicyError as error:
        _fail(command, str(error), ExitCode.USAGE)
    except AppraisalRefused as error:
        print_error(appraisal_table(error.appraisal))
        failed = [check for check in error.appraisal.checks if check.verdict == "fail"]
        code = ExitCode.EVIDENCE if any(check.area == "evidence" for check in failed) else ExitCode.POLICY
        names = ", ".join(check.name for check in failed)
        _fail(command, f"the worker was REFUSED: {names}. Nothing was sent to it.{_hint(error)}", code)
    except Unreachable as error:
        _fail(command, f"{error}. Is the address right, and is the worker running?", ExitCode.TRANSPORT)
    except ClientError as error:
        _fail(command, str(error), ExitCode.FAILED)


def _hint(error: AppraisalRefused) -> str:
    simulated = any(
        c.name == "tee.type" and c.seen == "simulated" and c.verdict == "fail" for c in error.appraisal.checks
    )
    if not simulated:
        return ""
    return (
        " It presents simulated evidence, which proves nothing; for development alone, "
        "a policy may say insecure_allow_simulated: true."
    )


def _fail(command: str, message: str, code: ExitCode) -> None:
    typer.echo(f"strongroom {command}: {message}", err=True)
    raise typer.Exit(code)


def address_option(text: str) -> Address:
    """Parse `HOST:PORT` of an option."""
    try:
        return Address.parse(text)
    except BadAddress as error:
        raise typer.BadParameter(str(error)) from error
