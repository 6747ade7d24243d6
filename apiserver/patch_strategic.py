"""Strategic merge patch, pure: a merge patch in which lists of some fields merge by a key.

How a field merges (`patch_strategy`, `patch_merge_key`) is in the field table. Directives in the
patch: `$patch: replace|delete|merge` on objects and list items, `$retainKeys`,
`$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD`.

Counterpart: apimachinery util/strategicpatch; the order of merged lists follows its documentation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

from podyard.api import facts
from podyard.api.facts import FieldFact

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"

Schema = dict[str, FieldFact]
Json = dict[str, Any]


class BadPatch(ValueError):
    """The patch is malformed, whatever it is applied to."""


class PatchMismatch(ValueError):
    """The patch does not fit the object."""


def merge(value: Json, patch: Json, message: str) -> Json:
    """A strategic merge patch applied.

    Args:
        value: may be changed.
        patch: not changed, shares nothing with the result.
        message: full name of the object's message; names the fields that merge.

    Raises:
        BadPatch, PatchMismatch: with upstream's texts.
    """
    return _merge_object(value, copy.deepcopy(patch), _schema(message))


@cache
def _schema(message: str) -> Schema:
    """The fields of a message by JSON name, those of inlined messages among them."""
    found: Schema = {}
    for fact in facts.fields().get(message, ()):
        if fact.inline:
            found.update(_schema(fact.type))
        else:
            found[fact.json_name] = fact
    return found


def _inner(fact: FieldFact | None) -> Schema:
    """The schema of what is inside a field; empty for scalars, maps and free-form objects."""
    if fact is None or fact.label == "map":
        return {}
    return _schema(fact.type)


def _merge_object(value: Json, patch: Json, schema: Schema) -> Json:
    directive = patch.pop(_DIRECTIVE, None)
    if directive == "replace":
        replaced: Json = _clean(patch)
        return replaced
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadPatch(f"unknown patch type {directive} in map")
    _retain_keys(value, patch)
    orders = _take(patch, _ORDER)
    for name, dropped in _take(patch, _DELETE_PRIMITIVES).items():
        if isinstance(value.get(name), list):
            value[name] = [item for item in value[name] if item not in dropped]
    before = {name: list(value[name]) for name in orders if isinstance(value.get(name), list)}
    for key, part in patch.items():
        if part is None:
            value.pop(key, None)
        elif key not in value:
            value[key] = _clean(part)
        else:
            value[key] = _merge_value(value[key], part, schema.get(key))
    for name, order in orders.items():
        _check_order(order, patch.get(name), schema.get(name))
        if isinstance(value.get(name), list):
            value[name] = _ordered(value[name], order, before.get(name, []), _identity(schema.get(name)))
    return value


def _merge_value(value: Any, part: Any, fact: FieldFact | None) -> Any:
    strategy = fact.patch_strategy if fact is not None else ()
    if isinstance(value, dict) and isinstance(part, dict):
        if "replace" in strategy:
            return _clean(part)
        return _merge_object(value, part, _inner(fact))
    if isinstance(value, list) and isinstance(part, list):
        if "merge" not in strategy:
            return _clean(part)
        assert fact is not None
        return _merge_list(value, part, fact)
    return _clean(part)


def _merge_list(value: list[Any], part: list[Any], fact: FieldFact) -> list[Any]:
    if not value and not part:
        return []
    if not all(isinstance(item, dict) for item in [*value, *part]):
        if any(isinstance(item, (dict, list)) for item in [*value, *part]):
            raise PatchMismatch("list element types are not identical")
        merged = list(dict.fromkeys([*value, *part]))
        return _ordered(merged, part, value, _identity(fact))
    key = fact.patch_merge_key
    if not key:
        raise PatchMismatch(f"cannot merge lists without merge key for type {fact.type}")
    items, part, replaced = _apply_item_directives(value, part, key)
    if replaced:
        return [_clean(item) for item in part]
    schema = _inner(fact)
    for item in part:
        wanted = _key_of(item, key)
        found = next((index for index, old in enumerate(items) if old.get(key) == wanted), None)
        if found is None:
            items.append(_clean(item))
        else:
            items[found] = _merge_object(items[found], dict(item), schema)
    return _ordered(items, part, value, _identity(fact))


def _apply_item_directives(
    value: list[Json], part: list[Json], key: str
) -> tuple[list[Json], list[Json], bool]:
    """Carries out `$patch` items of a list: (remaining items, remaining patch, replace all)."""
    items, kept, replaced = list(value), [], False
    for item in part:
        directive = item.get(_DIRECTIVE)
        if directive is None:
            kept.append(item)
        elif directive == "delete":
            wanted = _key_of(item, key)
            items = [old for old in items if old.get(key) != wanted]
        elif directive == "replace":
            replaced = True
            if len(item) > 1:
                kept.append({name: inner for name, inner in item.items() if name != _DIRECTIVE})
        elif directive == "merge":
            raise BadPatch("merging of lists with $patch: merge is not supported")
        else:
            raise BadPatch(f"unrecognized patch type {directive} in list")
    return items, kept, replaced


def _key_of(item: Json, key: str) -> Any:
    if key not in item:
        raise PatchMismatch(f"map: {_go_map(item)} does not contain declared merge key: {key}")
    return item[key]


def _go_map(item: Json) -> str:
    return "map[" + " ".join(f"{name}:{item[name]}" for name in sorted(item)) + "]"


def _retain_keys(value: Json, patch: Json) -> None:
    retained = patch.pop(_RETAIN, None)
    if retained is None:
        return
    if not isinstance(retained, list):
        raise BadPatch("invalid patch format of retainKeys")
    if any(
        key not in retained for key, part in patch.items() if part is not None and not key.startswith("$")
    ):
        raise BadPatch("invalid patch format of retainKeys")
    for key in [key for key in value if key not in retained]:
        del value[key]


def _take(patch: Json, prefix: str) -> dict[str, list[Any]]:
    """Takes the directives of this prefix out of a patch, by the field that they are about."""
    found: dict[str, list[Any]] = {}
    for key in [key for key in patch if key.startswith(prefix)]:
        part = patch.pop(key)
        if not isinstance(part, list):
            kind = "setElementOrder list" if prefix == _ORDER else "primitive list"
            raise BadPatch(f"invalid patch format of {kind}")
        found[key[len(prefix) :]] = part
    return found


def _check_order(order: list[Any], part: Any, fact: FieldFact | None) -> None:
    """What a patch holds of a list must stand in the same order in its `$setElementOrder`."""
    if not isinstance(part, list):
        return
    identity = _identity(fact)
    places = {identity(item): place for place, item in enumerate(order)}
    last = -1
    for item in part:
        if isinstance(item, dict) and _DIRECTIVE in item:
            continue
        place = places.get(identity(item))
        if place is None or place < last:
            raise BadPatch("invalid patch format of setElementOrder list")
        last = place


def _identity(fact: FieldFact | None) -> Callable[[Any], Hashable]:
    """What makes two items of a list the same one."""
    key = fact.patch_merge_key if fact is not None else ""

    def identity(item: Any) -> Hashable:
        found = item.get(key) if isinstance(item, dict) else item
        return (type(found).__name__, found if isinstance(found, Hashable) else str(found))

    return identity


def _ordered(
    merged: list[Any], order: list[Any], live: list[Any], identity: Callable[[Any], Hashable]
) -> list[Any]:
    """A merged list in its final order.

    Items that the patch names stand in the patch's order, the others in the order that they had;
    each of the others goes before the first named item that it stood before, else to the end.
    """
    wanted = {identity(item): place for place, item in reversed(list(enumerate(order)))}
    places = {identity(item): place for place, item in reversed(list(enumerate(live)))}
    named = sorted(
        (item for item in merged if identity(item) in wanted), key=lambda item: wanted[identity(item)]
    )
    others = [item for item in merged if identity(item) not in wanted]
    others.sort(key=lambda item: places.get(identity(item), len(live)))
    result: list[Any] = []
    for item in named:
        place = places.get(identity(item))
        while others and place is not None and places.get(identity(others[0]), len(live)) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _clean(part: Any) -> Any:
    """A part of a patch that has nothing to merge with: without directives and nulls."""
    if isinstance(part, dict):
        if part.get(_DIRECTIVE) == "delete":
            return {}
        return {
            key: _clean(inner)
            for key, inner in part.items()
            if inner is not None
            and not key.startswith((_ORDER, _DELETE_PRIMITIVES))
            and key not in (_DIRECTIVE, _RETAIN)
        }
    if isinstance(part, list):
        return [
            _clean(item)
            for item in part
            if not (
                isinstance(item, dict) and (item.get(_DIRECTIVE) == "delete" or set(item) == {_DIRECTIVE})
            )
        ]
    return part
