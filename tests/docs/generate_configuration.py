"""The table of settings in docs/configuration.md, made from the models that read the settings.

`python -m tests.docs.generate_configuration` writes it between the two markers; with `--check` it writes nothing and
exits with 1 if the page is stale.
"""

import argparse
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from strongroom.launcher.commands.serve import serve
from strongroom.launcher.config import AddressText, Config

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN = "<!-- begin of the generated table: python -m tests.docs.generate_configuration -->"
END = "<!-- end of the generated table -->"
HEADER = ("setting", "type", "default", "meaning", "flag")


class StalePage(Exception):
    """The page lacks the markers, or what stands between them is not the table of today."""


def rows() -> Iterator[tuple[str, ...]]:
    """One row a setting, in the order of the models."""
    yield from _rows(Config, "", Config.model_json_schema())


def _rows(model: type[BaseModel], prefix: str, root: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    schema = root if model is Config else root["$defs"][model.__name__]
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _rows(field.annotation, f"{prefix}{name}.", root)
            continue
        yield (
            f"`{prefix}{name}`",
            _type(field, schema["properties"][name]),
            _default(field),
            field.description or "",
            "" if prefix else _flag(name),
        )


def _type(field: FieldInfo, schema: dict[str, Any]) -> str:
    """What may be written, from the JSON schema and the annotations that it does not show."""
    if AddressText.__metadata__[0] in field.metadata:
        return "HOST:PORT"
    schema = next((part for part in schema.get("anyOf", []) if part["type"] != "null"), schema)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "path":
        return "path"
    if "pattern" in schema:
        return f"text like `{schema['pattern']}`"
    kind = {"integer": "integer", "number": "number", "boolean": "true or false", "string": "text"}[schema["type"]]
    return kind + _range(schema)


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema["type"] == "integer" and "exclusiveMaximum" in schema:
        high = schema["exclusiveMaximum"] - 1
    if "exclusiveMinimum" in schema:
        return f", above {schema['exclusiveMinimum']:g}, at most {high:g}"
    if low is not None and high is not None:
        return f", {low} to {high}"
    return "" if low is None else f", at least {low}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "not set" if field.default is None else f"`{json.dumps(field.default).strip(chr(34))}`"


def _flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`" if name in inspect.signature(serve).parameters else ""


def table() -> str:
    """The table in Markdown."""
    lines = [HEADER, tuple("---" for _ in HEADER), *rows()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page_with(generated: str, page: str) -> str:
    """`page` with `generated` between its markers; raises `StalePage` unless each marker is there once."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise StalePage(f"the page must hold the two markers once, in order:\n{BEGIN}\n{END}")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is stale")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    try:
        wanted = page_with(table(), page)
        if check and wanted != page:
            raise StalePage(f"{PAGE.name} is stale: run python -m tests.docs.generate_configuration")
    except StalePage as error:
        sys.exit(str(error))
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
