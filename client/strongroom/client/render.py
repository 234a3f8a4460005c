"""Appraisals for people."""

import re
import time

from rich.console import Console
from rich.table import Table
from rich.text import Text

from strongroom.attestation.appraisal import Appraisal, Check

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{12,}([0-9a-f]{8})\b")


def appraisal_table(appraisal: Appraisal) -> Table:
    """Every check with its verdict and what was seen; what was expected is shown where it differs."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(appraisal.time))
    waived = sum(check.insecure for check in appraisal.checks)
    verdict = appraisal.verdict.upper() + (f", {waived} checks waived (INSECURE)" if waived else "")
    table = Table(title=f"Appraisal at {when}: {verdict}", title_justify="left")
    table.add_column("check", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for check in appraisal.checks:
        table.add_row(check.name, _verdict(check), Text(_finding(check)))
    return table


def _verdict(check: Check) -> Text:
    if check.verdict == "fail":
        return Text("FAIL", style="bold red")
    if check.insecure:
        return Text("INSECURE", style="bold yellow")
    return Text("pass", style="green")


def _finding(check: Check) -> str:
    seen, expected = _short(check.seen), _short(check.expected)
    if check.verdict == "fail":
        return f"{seen}; expected: {expected}"
    if check.insecure:
        return f"{seen}; not checked: {expected}"
    return seen if seen == expected else f"{seen} ({expected})"


def _short(text: str) -> str:
    """Long digests keep their ends, which is where people compare them; `--json` has them whole."""
    return _DIGEST.sub(r"\1..\2", text)


def print_error(content: Table) -> None:
    """Print to standard error."""
    Console(stderr=True).print(content)


def print_out(content: Table) -> None:
    """Print to standard output."""
    Console().print(content)
