"""Validation of metadata, label selectors and conditions, shared by all kinds.

Counterpart: apimachinery `api/validation`, `apis/meta/v1/validation`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podyard.api import codec, codec_json, facts, meta, names
from podyard.api.errors import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from podyard.api.quoting import go_quote, shown
from podyard.api.types import LabelSelector, Message, ObjectMeta, StatusCause

Causes = list[StatusCause]
NameProblems = Callable[[str], list[str]]

IMMUTABLE = "field is immutable"
MAX_ANNOTATION_BYTES = 256 * 1024
STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
MAX_MANAGER_BYTES = 128
MAX_SUBRESOURCE_BYTES = 256
CONDITION_STATUSES = ("False", "True", "Unknown")
MAX_REASON_BYTES = 1024
MAX_MESSAGE_BYTES = 32 * 1024
SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


Check = Callable[[Any], Causes]
CheckUpdate = Callable[[Any, Any], Causes]


@dataclass(frozen=True, slots=True)
class Rules:
    """What is checked of a kind.

    Attributes:
        create: a new object, defaults and the server's own changes in it.
        update: new and old, of the main resource.
        parts: the same for updates through subresources.
    """

    create: Check
    update: CheckUpdate
    parts: Mapping[str, CheckUpdate] = field(default_factory=dict)


def rules(
    create: Check,
    *stays: CheckUpdate,
    last: CheckUpdate | None = None,
    status: CheckUpdate | None = None,
) -> Rules:
    """Rules of a kind whose update is checked as a new object is, and for what may not change.

    Args:
        stays: what may not change, beside metadata.
        last: what else may not, said after all other errors.
        status: of the status subresource, beside metadata.
    """

    def update(new: Any, old: Any) -> Causes:
        causes = object_meta_update(new.metadata, old.metadata)
        for check in stays:
            causes += check(new, old)
        causes += create(new)
        return causes if last is None else causes + last(new, old)

    def update_status(new: Any, old: Any) -> Causes:
        assert status is not None
        return object_meta_update(new.metadata, old.metadata) + status(new, old)

    return Rules(create, update, {} if status is None else {"status": update_status})


def any_status(new: Any, old: Any) -> Causes:
    """For statuses without rules."""
    return []


def each(path: str, value: Any, problems: Iterable[str]) -> Causes:
    """One Invalid error for each problem that a format function found."""
    return [invalid(path, value, problem) for problem in problems]


def immutable(path: str, new: Any, old: Any) -> Causes:
    """An error when a value changed."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def object_meta(metadata: ObjectMeta, *, namespaced: bool, name_problems: NameProblems) -> Causes:
    """Metadata of any object.

    Args:
        name_problems: the kind's rule for names, of `podyard.api.names`.
    """
    path = "metadata"
    causes: Causes = []
    if metadata.generateName:
        # What comes after the prefix ends it well, so a dash there is fine.
        prefix = metadata.generateName
        masked = f"{prefix[:-1]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix
        causes += each(f"{path}.generateName", prefix, name_problems(masked))
    if not metadata.name:
        causes.append(required(f"{path}.name", "name or generateName is required"))
    else:
        causes += each(f"{path}.name", metadata.name, name_problems(metadata.name))
    if namespaced:
        if not metadata.namespace:
            causes.append(required(f"{path}.namespace"))
        else:
            problems = names.dns_label_problems(metadata.namespace)
            causes += each(f"{path}.namespace", metadata.namespace, problems)
    elif metadata.namespace:
        causes.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    if metadata.generation < 0:
        causes.append(_negative(f"{path}.generation", metadata.generation))
    causes += labels(metadata.labels, f"{path}.labels")
    causes += annotation_map(metadata.annotations, f"{path}.annotations")
    causes += _owner_references(metadata, f"{path}.ownerReferences")
    causes += _finalizers(metadata, f"{path}.finalizers")
    return causes + _managed_fields(metadata, f"{path}.managedFields")


def non_negative(path: str, value: int) -> Causes:
    """A number that may not be below 0."""
    return [_negative(path, value)] if value < 0 else []


def _negative(path: str, value: int) -> StatusCause:
    return invalid(path, value, "must be greater than or equal to 0")


def labels(values: Mapping[str, str], path: str) -> Causes:
    """Label keys and values."""
    causes: Causes = []
    for key in sorted(values):
        causes += label_name(key, path)
        causes += each(path, values[key], names.label_value_problems(values[key]))
    return causes


def label_name(key: str, path: str) -> Causes:
    """A label's key."""
    return each(path, key, names.qualified_name_problems(key))


def annotation_map(values: Mapping[str, str], path: str) -> Causes:
    """Annotation keys, and their size all together."""
    causes: Causes = []
    size = 0
    for key in sorted(values):
        causes += each(path, key, names.qualified_name_problems(key.lower()))
        size += len(key.encode()) + len(values[key].encode())
    if size > MAX_ANNOTATION_BYTES:
        causes.append(too_long(path, MAX_ANNOTATION_BYTES))
    return causes


def _owner_references(metadata: ObjectMeta, path: str) -> Causes:
    causes: Causes = []
    controller = ""
    for owner in metadata.ownerReferences:
        group, _, version = owner.apiVersion.rpartition("/")
        if not version or "/" in group:
            causes.append(invalid(f"{path}.apiVersion", owner.apiVersion, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not getattr(owner, name):
                causes.append(invalid(f"{path}.{name}", getattr(owner, name), "must not be empty"))
        if (owner.apiVersion, owner.kind) == ("v1", "Event"):
            shown = f"{group}/{version}, Kind=Event"
            causes.append(invalid(path, codec.to_dict(owner), f"{shown} is disallowed from being an owner"))
        if owner.controller:
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. Found "
                    f'"true" in references for {controller} and {owner.name}'
                )
                listed = [codec.to_dict(item) for item in metadata.ownerReferences]
                causes.append(invalid(path, listed, detail))
            else:
                controller = owner.name
    return causes


def _finalizers(metadata: ObjectMeta, path: str) -> Causes:
    causes: Causes = []
    for name in metadata.finalizers:
        causes += finalizer_name(name, path)
    if "orphan" in metadata.finalizers and "foregroundDeletion" in metadata.finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid(path, list(metadata.finalizers), detail))
    return causes


def finalizer_name(name: str, path: str) -> Causes:
    """A finalizer: a standard one or `domain/name`."""
    causes = each(path, name, names.qualified_name_problems(name))
    if "/" not in name and name not in STANDARD_FINALIZERS:
        causes.append(
            invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
        )
    return causes


def _managed_fields(metadata: ObjectMeta, path: str) -> Causes:
    causes: Causes = []
    for index, entry in enumerate(metadata.managedFields):
        at = f"{path}[{index}]"
        if entry.operation not in ("Apply", "Update"):
            causes.append(invalid(f"{at}.operation", entry.operation, "must be `Apply` or `Update`"))
        if entry.fieldsType and entry.fieldsType != "FieldsV1":
            causes.append(invalid(f"{at}.fieldsType", entry.fieldsType, "must be `FieldsV1`"))
        if len(entry.manager.encode()) > MAX_MANAGER_BYTES:
            causes.append(too_long(f"{at}.manager", MAX_MANAGER_BYTES))
        if not entry.manager.isprintable():
            bad = next(i for i, char in enumerate(entry.manager) if not char.isprintable())
            detail = f"invalid character '\\u{ord(entry.manager[bad]):04x}' (at position {bad})"
            causes.append(invalid(f"{at}.manager", entry.manager, detail))
        if len(entry.subresource.encode()) > MAX_SUBRESOURCE_BYTES:
            causes.append(too_long(f"{at}.subresource", MAX_SUBRESOURCE_BYTES))
    return causes


def object_meta_update(new: ObjectMeta, old: ObjectMeta) -> Causes:
    """What may not change in metadata; the server has filled in what the client left out."""
    path = "metadata"
    causes: Causes = []
    if meta.is_terminating(old):
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            text = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {_go_list(added)}"
            )
            causes.append(forbidden(f"{path}.finalizers", text))
    if new.generation < old.generation:
        causes.append(invalid(f"{path}.generation", new.generation, "must not be decremented"))
    for name in ("name", "namespace", "uid"):
        causes += immutable(f"{path}.{name}", getattr(new, name), getattr(old, name))
    for name in ("creationTimestamp", "deletionTimestamp"):
        if getattr(new, name).seconds != getattr(old, name).seconds:
            causes.append(invalid(f"{path}.{name}", codec.to_dict(new).get(name), IMMUTABLE))
    changed = new.deletionGracePeriodSeconds != old.deletionGracePeriodSeconds
    if new.HasField("deletionGracePeriodSeconds") and changed:
        causes.append(
            invalid(f"{path}.deletionGracePeriodSeconds", new.deletionGracePeriodSeconds, IMMUTABLE)
        )
    causes += labels(new.labels, f"{path}.labels")
    causes += annotation_map(new.annotations, f"{path}.annotations")
    causes += _owner_references(new, f"{path}.ownerReferences")
    return causes + _managed_fields(new, f"{path}.managedFields")


def _go_list(values: list[str]) -> str:
    return f"[]string{{{', '.join(go_quote(value) for value in values)}}}"


# Go writes these out when a name begins with them, else only the first letter.
_INITIALS = re.compile("^((api|ip|uid|url)(?=[A-Z]|$)|.)")


def go_struct(message: Message) -> dict[str, Any]:
    """A bad value as upstream shows one of its internal structs: Go's field names, zero values too.

    Types of apimachinery have no internal form: they are shown as JSON.
    """
    if message.DESCRIPTOR.full_name.startswith("k8s.io.apimachinery."):
        return codec.to_dict(message)
    out: dict[str, Any] = {}
    for fact in facts.fields()[message.DESCRIPTOR.full_name]:
        name = _INITIALS.sub(lambda match: match[0].upper(), fact.name)
        value = getattr(message, fact.name)
        if fact.label == "repeated":
            out[name] = [_go_value(item) for item in value] or None
        elif fact.label == "map":
            out[name] = {key: _go_value(item) for key, item in sorted(value.items())} or None
        elif fact.pointer and not message.HasField(fact.name):
            out[name] = None
        else:
            out[name] = _go_value(value)
    return out


def _go_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if not isinstance(value, Message):
        return value
    name = value.DESCRIPTOR.full_name
    plain = name in codec_json.SPECIAL_DECODERS or name not in facts.fields()
    return codec.to_dict(value) if plain else go_struct(value)


def difference(name: str, new: Message, old: Message) -> str:
    """The fields that differ, old ones marked `-`, new ones `+`; `name` is of upstream's type."""
    fresh, stored = codec.to_dict(new), codec.to_dict(old)
    lines = [f"  core.{name}{{"]
    for key in dict.fromkeys([*stored, *fresh]):
        if fresh.get(key) != stored.get(key):
            lines += [
                f"{mark} \t{key[0].upper()}{key[1:]}: {shown(values[key])},"
                for mark, values in (("-", stored), ("+", fresh))
                if key in values
            ]
    return "\n".join([*lines, "  }", ""])


def label_selector(selector: LabelSelector, path: str) -> Causes:
    """A selector message."""
    causes = labels(selector.matchLabels, f"{path}.matchLabels")
    for index, term in enumerate(selector.matchExpressions):
        at = f"{path}.matchExpressions[{index}]"
        if term.operator in ("In", "NotIn"):
            if not term.values:
                causes.append(
                    required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
                )
        elif term.operator in ("Exists", "DoesNotExist"):
            if term.values:
                causes.append(
                    forbidden(
                        f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    )
                )
        else:
            causes.append(invalid(f"{at}.operator", term.operator, "not a valid selector operator"))
        causes += label_name(term.key, f"{at}.key")
        for at_value, value in enumerate(term.values):
            causes += each(f"{at}.values[{at_value}]", value, names.label_value_problems(value))
    return causes


def unique(path: str, values: Iterable[str]) -> Causes:
    """A Duplicate error at `path[i]` for every repeated value."""
    seen: set[str] = set()
    causes: Causes = []
    for index, value in enumerate(values):
        if value in seen:
            causes.append(duplicate(f"{path}[{index}]", value))
        seen.add(value)
    return causes


def one_of(path: str, value: str, allowed: Iterable[str], *, needed: bool = False) -> Causes:
    """A value of an enumeration; empty is fine unless `needed`."""
    listed = list(allowed)
    if value in listed or (not value and not needed):
        return []
    return [not_supported(path, value, listed)] if value else [required(path)]


def conditions(values: Sequence[Any], path: str) -> Causes:
    """Conditions of the general type (meta/v1 Condition)."""
    causes: Causes = []
    seen: set[str] = set()
    for index, item in enumerate(values):
        at = f"{path}[{index}]"
        if item.type in seen:
            causes.append(duplicate(f"{at}.type", item.type))
        seen.add(item.type)
        causes += each(f"{at}.type", item.type, names.qualified_name_problems(item.type))
        if item.status not in CONDITION_STATUSES:
            causes.append(not_supported(f"{at}.status", item.status, CONDITION_STATUSES))
        if item.observedGeneration < 0:
            detail = "must be greater than or equal to zero"
            causes.append(invalid(f"{at}.observedGeneration", item.observedGeneration, detail))
        if meta.is_zero_time(item.lastTransitionTime):
            causes.append(required(f"{at}.lastTransitionTime", "must be set"))
        if not item.reason:
            causes.append(required(f"{at}.reason", "must be set"))
        else:
            causes += each(f"{at}.reason", item.reason, names.condition_reason_problems(item.reason))
            if len(item.reason) > MAX_REASON_BYTES:
                causes.append(too_long(f"{at}.reason", MAX_REASON_BYTES))
        if len(item.message) > MAX_MESSAGE_BYTES:
            causes.append(too_long(f"{at}.message", MAX_MESSAGE_BYTES))
    return causes
