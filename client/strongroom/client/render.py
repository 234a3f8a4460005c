"""Appraisals for people."""

import time

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strongroom.attestation.appraisal import Appraisal, Check

_SHOWN = 40


def appraisal_table(appraisal: Appraisal) -> Table:
    """Every check with what was asked for, what was seen, and the verdict."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(appraisal.time))
    table = Table(title=f"Appraisal at {when}: {appraisal.verdict.upper()}", title_justify="left")
    table.add_column("check", no_wrap=True)
    for column in ("expected", "seen", "verdict"):
        table.add_column(column, overflow="fold")
    for check in appraisal.checks:
        table.add_row(check.name, Text(_short(check.expected)), Text(_short(check.seen)), _verdict(check))
    return table


def _verdict(check: Check) -> Text:
    if check.verdict == "fail":
        return Text("FAIL", style="bold red")
    if check.insecure:
        return Text("pass, INSECURE", style="bold yellow")
    return Text("pass", style="green")


def _short(text: str) -> str:
    """Long digests keep their ends, which is where people compare them; `--json` has them whole."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]}"


def print_error(content: Table) -> None:
    """Print to standard error."""
    Console(stderr=True).print(content)


def print_out(content: Table) -> None:
    """Print to standard output."""
    Console().print(content)
