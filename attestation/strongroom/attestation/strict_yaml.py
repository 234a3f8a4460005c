"""YAML in which nothing is said twice: of two equal keys the last would win, unseen."""

from typing import Any

import yaml


class BadYaml(ValueError):
    """Text that is not YAML, or repeats a key; the message has the place."""


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key} is written twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The document in `text`; raises `BadYaml`."""
    try:
        return yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise BadYaml(str(error)) from error
    except Exception as error:
        # PyYAML's constructors let foreign errors out, such as KeyError for `!!bool x`.
        raise BadYaml(f"a value that its tag does not allow ({type(error).__name__})") from error
