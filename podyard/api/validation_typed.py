"""Validation that follows from the field table alone: what must be given, enumerations, unique lists.

For kinds whose rules are mostly of this form; what else they have stands with the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from podyard.api import codec_json, facts
from podyard.api.errors import duplicate, not_supported, required
from podyard.api.facts import FieldFact
from podyard.api.types import Message
from podyard.api.validation_meta import Causes, label_selector

_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_SELECTOR = f"{_META}LabelSelector"
# Checked elsewhere, or free of rules.
_LEFT = frozenset({f"{_META}ObjectMeta", f"{_META}Condition", "k8s.io.api.core.v1.NodeSelector"})


def typed(message: Any, path: str, *, skip: Iterable[str] = ()) -> Causes:
    """Errors of a message and of all that is in it.

    Args:
        path: of the message; its fields stand below it.
        skip: JSON names of fields of this message that have rules of their own.
    """
    causes: Causes = []
    left = frozenset(skip)
    for fact in facts.fields()[message.DESCRIPTOR.full_name]:
        if fact.json_name not in left:
            at = path if fact.inline else f"{path}.{fact.json_name}" if path else fact.json_name
            causes += _field(message, fact, at)
    return causes


def _field(message: Any, fact: FieldFact, path: str) -> Causes:
    value = getattr(message, fact.name)
    if fact.label == "repeated":
        return _list(value, fact, path)
    if fact.label == "map":
        return _map(value, fact, path)
    if isinstance(value, Message):
        if message.HasField(fact.name) or (fact.inline and not fact.pointer):
            return _nested(value, path)
        needed = fact.required and fact.pointer
        return [required(path)] if needed else _nested(value, path) if fact.required else []
    if fact.type == "string":
        return _text(message, fact, value, path)
    return []


def _text(message: Any, fact: FieldFact, value: str, path: str) -> Causes:
    if not value and not (fact.pointer and message.HasField(fact.name)):
        return [required(path)] if fact.required else []
    if fact.enum_closed and value not in fact.enum_values:
        return [not_supported(path, value, fact.enum_values)]
    return []


def _list(values: Sequence[Any], fact: FieldFact, path: str) -> Causes:
    if not values:
        return [required(path)] if fact.required else []
    causes: Causes = []
    seen: set[Any] = set()
    for index, value in enumerate(values):
        at = f"{path}[{index}]"
        if isinstance(value, Message):
            causes += _nested(value, at)
            if fact.list_type == "map":
                key: Any = tuple(getattr(value, name, None) for name in fact.list_map_keys)
                if key in seen:
                    causes.append(duplicate(at, key[0] if len(key) == 1 else list(key)))
                seen.add(key)
            continue
        if fact.type == "string" and fact.enum_closed and value not in fact.enum_values:
            causes.append(not_supported(at, value, fact.enum_values))
        if fact.list_type == "set" and value in seen:
            causes.append(duplicate(at, value))
        seen.add(value)
    return causes


def _map(values: Any, fact: FieldFact, path: str) -> Causes:
    causes: Causes = []
    for key in sorted(values):
        if isinstance(values[key], Message):
            causes += _nested(values[key], f"{path}[{key}]")
    return causes


def _nested(value: Message, path: str) -> Causes:
    name = value.DESCRIPTOR.full_name
    if name == _SELECTOR:
        return label_selector(value, path)  # type: ignore[arg-type]
    if name in _LEFT or name in codec_json.SPECIAL_DECODERS or name not in facts.fields():
        return []
    return typed(value, path)
