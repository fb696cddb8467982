"""Read YAML files, and check values against the schemas of this package."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from hpcmm.model import HpcmmError
from hpcmm.system import files
from hpcmm.system.text import choices

if TYPE_CHECKING:
    import jsonschema

# Types of JSON Schema in terms of YAML
TYPES = {"array": "a list in brackets", "object": "keys with values", "boolean": "true or false"}
TYPES |= {"integer": "an integer", "number": "a number, such as 0.001", "string": "a name"}
# What keywords of JSON Schema allow
LIMITS = {"maxLength": "at most {} characters", "minimum": "at least {}", "maximum": "at most {}"}
LIMITS |= {"exclusiveMinimum": "more than {}", **dict.fromkeys(("minItems", "minProperties"), "at least {} entry")}

MOST_PROBLEMS = 20  # listed in one error
MOST_BYTES = 1_000_000  # of a YAML file: reading it takes a second
MOST_VALUES = 10_000  # in a YAML file, once its aliases are expanded


class ConfigError(HpcmmError):
    """A config that cannot be run.

    Each problem is a line: key, value, what is allowed. The message has the first ``MOST_PROBLEMS``.
    """

    def __init__(self, *problems: str):
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        more = len(self.problems) - MOST_PROBLEMS
        return "\n".join([*self.problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Prefix each problem of a ConfigError with the name of its file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from error


class Loader(yaml.SafeLoader):
    """YAML 1.1 without its ambiguous forms.

    It refuses duplicate keys, recursive aliases, integers in base 60 and 8 (1:30 is 90, and 010 is 8), and aliases
    that expand to more than ``MOST_VALUES`` values.
    """

    def __init__(self, stream: str | TextIO):
        super().__init__(stream)
        self.values = 0  # so far, with aliases expanded
        self.values_of: dict[yaml.Node, int] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} appears twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        mark = self.peek_event().start_mark
        before = self.values
        node = super().compose_node(parent, index)
        if node.end_mark is None:  # the node is still being read
            raise yaml.MarkedYAMLError(problem="recursive alias", problem_mark=node.start_mark)
        self.values += self.values_of.get(node, 1)
        self.values_of.setdefault(node, self.values - before)
        if self.values > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_VALUES} values, aliases expanded", problem_mark=mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # for example the date 2026-13-01
            raise yaml.MarkedYAMLError(problem=f"not a value: {error}", problem_mark=node.start_mark) from error

    def construct_decimal(self, node: yaml.ScalarNode) -> int | float:
        digits = node.value.lstrip("+-")
        whole = node.tag == "tag:yaml.org,2002:int"
        if ":" in digits or (whole and len(digits) > 1 and digits[0] == "0" and digits[1] not in "xb"):
            base = 60 if ":" in digits else 8
            problem = f"{node.value} is a number in base {base} in YAML 1.1; write it in base 10"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_decimal)


def parse(text: str | TextIO, place: str | Path) -> Any:
    """Parse YAML; errors name ``place``."""
    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise ConfigError(f"{place}: nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = "a tab; indent by blanks" if "'\\t'" in str(error.problem) else error.problem or error.context
        raise ConfigError(f"{place}: {where}{problem}") from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{place}: not a text file (a control character at {error.position})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: not a text file in UTF-8") from error


def typed(value: Any) -> Any:
    """Return a value with its texts parsed as YAML: numbers and booleans of a command line.

    >>> typed({"sizes": ["64", "128"], "dtypes": ["float32"], "accuracy": "true"})
    {'sizes': [64, 128], 'dtypes': ['float32'], 'accuracy': True}
    """
    if isinstance(value, Mapping):
        return {key: typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return parse(value, "--config") if isinstance(value, str) else value


def text_of(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a file, in UTF-8."""
    try:
        with files.opened(path) as file:
            content = file.read(most_bytes + 1)
        text = content.decode("utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file in UTF-8") from error
    if len(content) > most_bytes:
        raise ConfigError(f"{path}: too long; allowed: {most_bytes} bytes")
    return text


def short(value: Any) -> str:
    """Return a value as Python writes it, a switch as YAML does, truncated to 100 characters."""
    text = repr(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def dotted(path: Iterable) -> str:
    """Return a place in the config, such as ``"sweeps.size.tiles"``, without the indices of lists."""
    return ".".join(str(part) for part in path if not isinstance(part, int))


def not_allowed(value: Any) -> str:
    return f"{short(value)} is not allowed; allowed: "


def schema_errors(schema: Mapping[str, Any], value: Any) -> Iterator[jsonschema.ValidationError]:
    """Return the errors that a schema finds in a value from YAML."""
    return validator()(schema).iter_errors(value)


@functools.cache
def validator() -> type[jsonschema.protocols.Validator]:
    """Return the class of validators: they refuse 64.0 as an integer, and YAML's .inf."""
    import jsonschema  # here, because it takes long to load, and jobs and most commands check no config

    def unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        """Check ``uniqueItems`` by the text of the items: jsonschema compares all pairs if they cannot be sorted."""
        if wanted and validator.is_type(instance, "array"):
            texts = [json.dumps(item, default=str) for item in instance]
            seen: set[str] = set()
            for text, each in zip(texts, instance, strict=True):
                if text in seen:
                    yield jsonschema.ValidationError(f"{short(each)} appears twice")
                    return
                seen.add(text)

    types = {
        "integer": lambda _, value: type(value) is int,
        "number": lambda _, value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
    }
    draft = jsonschema.Draft202012Validator
    return jsonschema.validators.extend(
        draft, validators={"uniqueItems": unique_items}, type_checker=draft.TYPE_CHECKER.redefine_many(types)
    )


def schema_problems(error: jsonschema.ValidationError) -> list[str]:
    """Describe an error of the schema for the author of a config: what is wrong, and what is allowed."""
    path = dotted(error.absolute_path)
    place = f"{path}: " if path else ""
    limit = error.validator_value
    name = "propertyNames" in error.absolute_schema_path
    value = f"{place}{'name ' if name else ''}{not_allowed(error.instance)}"
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"]
            unknown = [key for key in error.instance if key not in known]
            return [f"{place}unknown key {short(key)}; allowed: {choices(key, known)}" for key in unknown]
        case "required":
            missing = [key for key in limit if key not in error.instance]
            return [f"{place}key {key!r} is missing; needed: {', '.join(limit)}" for key in missing]
        case "enum":
            return [value + choices(error.instance, limit)]
        case "type":
            types = [TYPES[kind] for kind in ([limit] if isinstance(limit, str) else limit)]
            return [value + ("a string; write it in quotes" if name else " or ".join(types))]
        case "pattern":
            return [value + "letters, digits, '-' and '_', beginning with a letter or digit"]
        case "not":
            return [value + f"all but {', '.join(limit['enum'])}"]
        case "uniqueItems":
            return [f"{place}{error.message}; allowed: each value once"]
        case other if other in LIMITS:
            return [value + LIMITS[other].format(limit)]
        case _:
            return [f"{place}{error.message}"]
