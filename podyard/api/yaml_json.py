"""YAML to JSON values by the rules that upstream's clients and servers use (YAML 1.1, Go's reader).

Plain scalars resolve as in Go's yaml.v2: `yes` and `on` are booleans, `0644` is octal, `1:30` and
timestamps stay strings, `1e3` is a number. Keys become strings. Duplicate keys are reported, the
last value counts.

Counterpart: sigs.k8s.io/yaml.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as _BaseDumper
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeDumper as _BaseDumper  # type: ignore[assignment]
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_STRING_TAG = "tag:yaml.org,2002:str"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(
    r"[-+]?(?:0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o?_*[0-7][0-7_]*|0_*|[1-9][0-9_]*)"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# Source: yaml.v2 decode.go, allowedAliasRatio: what of the values read may have come through aliases.
_ALIASES_FREE, _VALUES_FREE = 100, 1_000
_RATIO_RANGE, _RATIO_SPAN = (400_000, 4_000_000), (0.99, 0.10)


class YamlError(ValueError):
    """Text that is no YAML, or YAML that JSON can't hold."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document's JSON value; `duplicates` is upstream's text about repeated keys, or empty."""

    value: Any
    duplicates: str = ""


class _Loader(_BaseLoader):
    """Resolves nothing itself: plain scalars are looked at in `_scalar`."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []
        self.expanded: set[int] = set()
        self.values = 0
        self.aliased = 0
        self.alias_depth = 0

    def count(self) -> None:
        """Counts a value; a short text of nested aliases may mean more of them than there is memory.

        Raises:
            YamlError: too many of the values came through aliases.
        """
        self.values += 1
        if not self.alias_depth:
            return
        self.aliased += 1
        if self.aliased > _ALIASES_FREE and self.values > _VALUES_FREE:
            (low, high), (most, least) = _RATIO_RANGE, _RATIO_SPAN
            part = min(max((self.values - low) / (high - low), 0.0), 1.0)
            if self.aliased / self.values > most - (most - least) * part:
                raise YamlError("yaml: document contains excessive aliasing")


def parse(data: bytes | str) -> Parsed:
    """Reads the first document.

    Raises:
        YamlError: with a text that names the line.
    """
    try:
        loader = _Loader(data)
        try:
            node = loader.get_node() if loader.check_node() else None
            value = None if node is None else _value(loader, node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise YamlError(f"yaml: {where}{error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise YamlError(f"yaml: {error}") from None
    duplicates = ""
    if loader.repeated:
        duplicates = "yaml: unmarshal errors:\n" + "\n".join(loader.repeated)
    return Parsed(value, duplicates)


def documents(data: bytes | str) -> int:
    """How many documents there are that say anything, of a text whose first one `parse` has read.

    Raises:
        YamlError: a later one is no YAML.
    """
    try:
        return sum(bool(node.value) for node in yaml.compose_all(data, Loader=_Loader) if node is not None)
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlError(f"yaml: {error}") from None


def _value(loader: _Loader, node: yaml.Node) -> Any:
    loader.count()
    if isinstance(node, yaml.ScalarNode):
        return _scalar(loader, node)
    # A collection met again stands for an alias: only its first place has it in the text.
    alias = id(node) in loader.expanded
    loader.expanded.add(id(node))
    loader.alias_depth += alias
    try:
        if isinstance(node, yaml.SequenceNode):
            return [_value(loader, item) for item in node.value]
        return _mapping(loader, node)
    finally:
        loader.alias_depth -= alias


def _mapping(loader: _Loader, node: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if key_node.value == "<<" and not key_node.style:
            sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for source in sources:
                for key, item in _mapping(loader, source).items():
                    merged.setdefault(key, item)
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError("yaml: invalid map key: only scalars can be keys")
        key = _key(_scalar(loader, key_node))
        if key in out:
            line = key_node.start_mark.line + 1
            loader.repeated.append(f'  line {line}: key "{key}" already set in map')
        out[key] = _value(loader, value_node)
    return {**merged, **out} if merged else out


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    text: str = node.value
    # libyaml's reader marks plain scalars with an empty style, the Python one with None.
    if node.style:
        return text
    # A plain scalar whose tag differs from the implied one was written with `!!str`.
    implied = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    if node.tag == _STRING_TAG and implied != _STRING_TAG:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise YamlError(f"yaml: unsupported value: {text}")
        return int(number) if number == int(number) and abs(number) < 2**53 else number
    return text


def _integer(text: str) -> int | float:
    digits = text.replace("_", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    for prefix, base in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    value = sign * int(digits)
    return value if -(2**63) <= value < 2**64 else float(value)


class _Dumper(_BaseDumper):
    """Quotes every string that a reader of `parse`'s rules would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    plain_is_other = text in _NULLS or text in _BOOLEANS or _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)
    return dumper.represent_scalar(_STRING_TAG, text, style="'" if plain_is_other else None)


_Dumper.add_representer(str, _represent_text)


def dump(value: Any) -> bytes:
    """A JSON value as YAML, keys in their order; `parse` gives the same value back."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text.encode()
