"""Patches on JSON values, pure: JSON Patch (RFC 6902), merge patch (RFC 7396), strategic merge.

`build` reads a patch once; what it returns is applied to the object, again after every conflict.

Counterpart: apiserver endpoints/handlers/patch.go, evanphx/json-patch (texts of its errors).
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import orjson

from apiserver import patch_strategic
from podyard.api import codec, codec_check, errors
from podyard.api.codec import Decoded
from podyard.api.errors import ApiError
from podyard.api.resources import Resource
from podyard.api.types import Message

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)

# Source: maxJSONPatchOperations.
MAX_OPERATIONS = 10_000
_REJECTED = "the server rejected our request due to an error in our request"


class Patch(Protocol):
    """A patch that was read.

    Attributes:
        warnings: what `fieldValidation=Warn` has to say of the patch itself.
    """

    warnings: list[str]

    def __call__(self, value: Any) -> Any:
        """The patched value; `value` may be changed on the way.

        Raises:
            ApiError: it does not apply.
        """
        ...


def build(patch_type: str, body: bytes, message: type[Message], field_validation: str) -> Patch:
    """Reads a patch.

    Raises:
        UnsupportedMediaType: not a kind of patch that is served.
        BadRequest: it does not parse.
        RequestEntityTooLarge: too many operations.
    """
    if patch_type not in PATCH_TYPES:
        # Differs from upstream: apply patches are refused as unknown until server-side apply is served.
        raise errors.UnsupportedMediaType.of(PATCH_TYPES)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.BadRequest(f"error decoding patch: {error}") from None
    if patch_type == JSON_PATCH:
        return JsonPatch(value)
    warnings = _duplicates(body, field_validation)
    if not isinstance(value, dict):
        raise errors.BadRequest(
            "Invalid JSON Patch" if patch_type == MERGE_PATCH else "invalid JSON document"
        )
    if patch_type == MERGE_PATCH:
        return MergePatch(value, warnings)
    return StrategicMergePatch(value, message, warnings)


def decode(patched: Any, row: Resource, field_validation: str) -> Decoded[Any]:
    """The object that a patch made.

    Raises:
        Invalid: it is no object of the row's kind.
    """
    if isinstance(patched, dict):
        kind, api_version = patched.get("kind", row.kind), patched.get("apiVersion", row.api_version)
        if (kind, api_version) != (row.kind, row.api_version):
            raise errors.BadRequest(
                f"the patched object is a {kind} of {api_version}, not a {row.kind} of {row.api_version}"
            )
    try:
        return codec.decode_value(
            patched,
            row.message,
            field_validation=field_validation,
            api_version=row.api_version,
            kind=row.kind,
        )
    except errors.BadRequest as error:
        cause = errors.invalid("patch", orjson.dumps(patched).decode(), error.message)
        raise errors.Invalid.of("", "", [cause]) from error


class MergePatch:
    """RFC 7396."""

    def __init__(self, patch: dict[str, Any], warnings: list[str]) -> None:
        self._patch = patch
        self.warnings = warnings

    def __call__(self, value: Any) -> Any:
        return merge(value, self._patch)


def merge(value: Any, patch: Any) -> Any:
    """A merge patch applied; `value` may be changed, `patch` is not and shares nothing with the result."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = value if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), part)
    return result


class StrategicMergePatch:
    """A merge patch that knows how lists of the kind merge."""

    def __init__(self, patch: dict[str, Any], message: type[Message], warnings: list[str]) -> None:
        self._patch = patch
        self._message = message
        self.warnings = warnings

    def __call__(self, value: Any) -> Any:
        try:
            return patch_strategic.merge(value, self._patch, self._message.DESCRIPTOR.full_name)
        except patch_strategic.BadPatch as error:
            raise errors.BadRequest(str(error)) from None
        except patch_strategic.PatchMismatch as error:
            raise rejected() from error


class JsonPatch:
    """RFC 6902, with `-1` as the last index as upstream's library has it."""

    def __init__(self, operations: Any) -> None:
        self.warnings: list[str] = []
        if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
            kind = codec_check.json_kind(operations)
            raise errors.BadRequest(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch")
        if len(operations) > MAX_OPERATIONS:
            raise errors.RequestEntityTooLarge.of(
                f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
            )
        self._operations = operations

    def __call__(self, value: Any) -> Any:
        document = _Document(value)
        for operation in self._operations:
            try:
                document.apply(operation)
            except _Inapplicable as error:
                raise rejected() from error
        return document.root


def rejected() -> ApiError:
    """A patch that parses and does not apply: 422, which does not tell why.

    Source: NewGenericServerResponse drops the reason of an answer that the server itself expected.
    """
    error = errors.Invalid(_REJECTED)
    error.empty_details = True
    return error


class _Inapplicable(Exception):
    """An operation does not fit the document."""


_MISSING = object()


class _Document:
    """A JSON value under a JSON patch."""

    def __init__(self, root: Any) -> None:
        self.root = root

    def apply(self, operation: dict[str, Any]) -> None:
        kind = operation.get("op")
        path = operation.get("path")
        if not isinstance(path, str):
            raise _Inapplicable(f"{kind} operation does not apply: missing path")
        match kind:
            case "add":
                self._add("add", path, self._value(operation))
            case "remove":
                self._remove("remove", path)
            case "replace":
                self._replace(path, self._value(operation))
            case "test":
                self._test(path, operation.get("value"))
            case "move" | "copy":
                self._carry(kind, operation, path)
            case _:
                raise _Inapplicable(f"Unexpected kind: {kind}")

    @staticmethod
    def _value(operation: dict[str, Any]) -> Any:
        return copy.deepcopy(operation.get("value"))

    def _parent(self, path: str) -> tuple[Any, str] | None:
        """The container of a path's last part, and that part; None when the way there is missing."""
        parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
        if parts[0] or len(parts) < 2:
            return None
        container = self.root
        for part in parts[1:-1]:
            container = _get(container, part)
            if not isinstance(container, (dict, list)):
                return None
        return container, parts[-1]

    def _add(self, kind: str, path: str, value: Any) -> None:
        if path == "":
            self.root = value
            return
        found = self._parent(path)
        if found is None:
            raise _Inapplicable(
                f'{kind} operation does not apply: doc is missing path: "{path}": missing value'
            )
        container, part = found
        if isinstance(container, dict):
            container[part] = value
        elif part == "-":
            container.append(value)
        else:
            container.insert(_index(container, part, f"error in {kind} for path: '{path}'", grow=True), value)

    def _remove(self, kind: str, path: str) -> Any:
        found = self._parent(path)
        if found is None:
            raise _Inapplicable(
                f'{kind} operation does not apply: doc is missing path: "{path}": missing value'
            )
        container, part = found
        if isinstance(container, dict):
            if part not in container:
                why = f"Unable to remove nonexistent key: {part}: missing value"
                raise _Inapplicable(f"error in {kind} for path: '{path}': {why}")
            return container.pop(part)
        return container.pop(_index(container, part, f"error in {kind} for path: '{path}'"))

    def _replace(self, path: str, value: Any) -> None:
        if path == "":
            self.root = value
            return
        found = self._parent(path)
        if found is None:
            raise _Inapplicable(
                f"replace operation does not apply: doc is missing path: {path}: missing value"
            )
        container, part = found
        if _get(container, part) is _MISSING:
            raise _Inapplicable(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            )
        container[part if isinstance(container, dict) else int(part)] = value

    def _test(self, path: str, wanted: Any) -> None:
        found = self._parent(path) if path else (None, "")
        if found is None:
            raise _Inapplicable(f"test operation does not apply: is missing path: {path}: missing value")
        value = self.root if path == "" else _get(*found)
        if value is _MISSING:
            value = None
        if not _equal(value, wanted):
            raise _Inapplicable(f"testing value {path} failed: test failed")

    def _carry(self, kind: str, operation: dict[str, Any], path: str) -> None:
        source = operation.get("from")
        found = self._parent(source) if isinstance(source, str) else None
        value = _MISSING if found is None else _get(*found)
        if value is _MISSING:
            raise _Inapplicable(
                f"{kind} operation does not apply: doc is missing from path: {source}: missing value"
            )
        if kind == "move":
            self._remove(kind, str(source))
        self._add(kind, path, copy.deepcopy(value))


def _get(container: Any, part: str) -> Any:
    if isinstance(container, dict):
        return container.get(part, _MISSING)
    if isinstance(container, list) and _is_index(part) and -len(container) <= int(part) < len(container):
        return container[int(part)]
    return _MISSING


def _is_index(part: str) -> bool:
    return part.lstrip("-").isdigit() and part.isascii() and part.count("-") <= 1


def _index(container: list[Any], part: str, where: str, *, grow: bool = False) -> int:
    """An index of a list; with `grow` also the one after the last, and negative ones count from there."""
    if not _is_index(part):
        raise _Inapplicable(f'{where}: strconv.Atoi: parsing "{part}": invalid syntax')
    index, size = int(part), len(container) + (1 if grow else 0)
    if not -size <= index < size:
        raise _Inapplicable(f"{where}: Unable to access invalid index: {part}: invalid index referenced")
    return index + size if index < 0 else index


def _equal(left: Any, right: Any) -> bool:
    """JSON equality, where 1 is not true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(isinstance(left, bool) == isinstance(right, bool) and left == right)


def _duplicates(body: bytes, field_validation: str) -> list[str]:
    """Keys that stand twice in a patch: refused under Strict, told under Warn."""
    if field_validation in ("", codec.IGNORE) or not codec_check.has_duplicate_keys(body):
        return []
    found = [f'json: duplicate field "{name}"' for name in _repeated(codec_check.parse(body), "")]
    if field_validation == codec.STRICT:
        raise errors.BadRequest(f"strict decoding error: {', '.join(found)}")
    return found


def _repeated(value: Any, path: str) -> list[str]:
    """The paths of keys that stand more than once in their object."""
    found: list[str] = []
    if isinstance(value, list):
        pairs = value if value and all(isinstance(item, tuple) for item in value) else None
        seen: set[str] = set()
        for position, item in enumerate(value):
            if pairs is None:
                found.extend(_repeated(item, f"{path}[{position}]"))
                continue
            key, inner = item
            here = f"{path}.{key}" if path else key
            if key in seen:
                found.append(here)
            seen.add(key)
            found.extend(_repeated(inner, here))
    return found
