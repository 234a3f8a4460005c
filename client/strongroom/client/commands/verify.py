"""`strongroom verify`: attest a worker and say what was proved."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer


def verify(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The worker's sealed gRPC address.")],
    policy: Annotated[Path, typer.Option(help="Policy file: what is acceptable.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, digests unshortened.")] = False,
) -> None:
    """Verify a worker's evidence against a policy, with a fresh nonce, and print every finding.

    Exit codes: 0 accepted, 2 wrong usage or policy file, 3 evidence refused, 6 policy not met, 7 unreachable.
    """
    from strongroom.attestation.appraisal import Appraisal
    from strongroom.attestation.errors import AppraisalRefused
    from strongroom.attestation.policy import load_policy
    from strongroom.client.channel import VerifiedChannel
    from strongroom.client.commands.common import address_option, reported
    from strongroom.client.render import appraisal_table, print_out

    address = address_option(server)

    async def run() -> Appraisal:
        async with VerifiedChannel(address, load_policy(policy)) as channel:
            return (await channel.attest()).appraisal

    with reported("verify"):
        try:
            appraisal = asyncio.run(run())
        except AppraisalRefused as error:
            if as_json:
                typer.echo(json.dumps(error.appraisal.as_json()))
            raise
        if as_json:
            typer.echo(json.dumps(appraisal.as_json()))
        else:
            print_out(appraisal_table(appraisal))
