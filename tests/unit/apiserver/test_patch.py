"""JSON patches and merge patches."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver import patch
from podyard.api import codec, errors, resources
from podyard.api.types import ConfigMap, Pod


def json_patch(value: Any, *operations: dict[str, Any]) -> Any:
    built = patch.build(patch.JSON_PATCH, orjson.dumps(operations), Pod, "Ignore")
    return built(copy.deepcopy(value))


@pytest.mark.parametrize(
    ("value", "operation", "expected"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"op": "add", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-1", "value": 2}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "add", "path": "", "value": {"b": 1}}, {"b": 1}),
        ({"a/b": 1, "m~n": 2}, {"op": "remove", "path": "/a~1b"}, {"m~n": 2}),
        ({"a/b": 1, "m~n": 2}, {"op": "remove", "path": "/m~0n"}, {"a/b": 1}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"a": None}, {"op": "replace", "path": "/a", "value": 1}, {"a": 1}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a/b", "path": "/c"}, {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, {"op": "copy", "from": "/a", "path": "/c"}, {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": {"b": [1, 2.0]}}, {"op": "test", "path": "/a", "value": {"b": [1, 2]}}, {"a": {"b": [1, 2]}}),
        ({"a": 1}, {"op": "test", "path": "/b", "value": None}, {"a": 1}),
    ],
)
def test_json_patch_operations(value: Any, operation: dict[str, Any], expected: Any) -> None:
    assert json_patch(value, operation) == expected


@pytest.mark.parametrize(
    ("value", "operation", "why"),
    [
        ({"a": 1}, {"op": "test", "path": "/a", "value": 2}, "testing value /a failed: test failed"),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}, "testing value /a failed: test failed"),
        (
            {"a": 1},
            {"op": "remove", "path": "/b"},
            "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            {"a": 1},
            {"op": "add", "path": "/b/c", "value": 1},
            'add operation does not apply: doc is missing path: "/b/c": missing value',
        ),
        (
            {"a": 1},
            {"op": "replace", "path": "/b", "value": 1},
            "replace operation does not apply: doc is missing key: /b: missing value",
        ),
        (
            {"a": [1]},
            {"op": "add", "path": "/a/3", "value": 1},
            "error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        ({"a": 1}, {"op": "swap", "path": "/a"}, "Unexpected kind: swap"),
        (
            {"a": 1},
            {"op": "move", "from": "/x", "path": "/b"},
            "move operation does not apply: doc is missing from path: /x: missing value",
        ),
    ],
)
def test_json_patch_that_does_not_apply(value: Any, operation: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.Invalid) as refused:
        json_patch(value, operation)
    assert refused.value.code == 422
    assert refused.value.message == "the server rejected our request due to an error in our request"
    # The client is not told why; the server may log it.
    status = refused.value.to_status()
    assert status.HasField("details")
    assert codec.to_dict(status.details) == {}
    assert str(refused.value.__cause__) == why


def test_operations_stand_on_each_other_and_share_nothing() -> None:
    result = json_patch(
        {},
        {"op": "add", "path": "/a", "value": {"x": []}},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/x/-", "value": 1},
    )
    assert result == {"a": {"x": [1]}, "b": {"x": []}}


@pytest.mark.parametrize(
    ("kind", "body", "error"),
    [
        (patch.JSON_PATCH, b"{", errors.BadRequest),
        (patch.JSON_PATCH, b"{}", errors.BadRequest),
        (patch.JSON_PATCH, b"[1]", errors.BadRequest),
        (patch.MERGE_PATCH, b"[1]", errors.BadRequest),
        (patch.STRATEGIC_MERGE_PATCH, b"nope", errors.BadRequest),
        ("application/apply-patch+yaml", b"{}", errors.UnsupportedMediaType),
        ("text/plain", b"{}", errors.UnsupportedMediaType),
    ],
)
def test_patches_that_do_not_parse(kind: str, body: bytes, error: type[errors.ApiError]) -> None:
    with pytest.raises(error):
        patch.build(kind, body, Pod, "Ignore")


def test_a_json_patch_has_a_limit() -> None:
    body = orjson.dumps([{"op": "test", "path": "", "value": {}}] * 10_001)
    with pytest.raises(errors.RequestEntityTooLarge, match="10000, got 10001"):
        patch.build(patch.JSON_PATCH, body, Pod, "Ignore")


@pytest.mark.parametrize(
    ("value", "change", "expected"),
    [
        # The examples of RFC 7396.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(value: Any, change: Any, expected: Any) -> None:
    before = copy.deepcopy(change)
    assert patch.merge(value, change) == expected
    assert change == before


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["x", "y"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return value


@given(st.dictionaries(st.sampled_from("abc"), JSON), st.dictionaries(st.sampled_from("abc"), JSON))
def test_merge_patch_is_idempotent(value: Any, change: Any) -> None:
    once = patch.merge(copy.deepcopy(value), change)
    assert patch.merge(copy.deepcopy(once), change) == once


@given(st.dictionaries(st.sampled_from("abc"), JSON))
def test_a_merge_patch_on_nothing_is_itself_without_nulls(change: Any) -> None:
    assert patch.merge({}, change) == without_nulls(change)


def test_duplicate_keys_of_a_patch() -> None:
    body = b'{"metadata":{"labels":{"a":"1","a":"2"}}}'
    assert patch.build(patch.MERGE_PATCH, body, Pod, "Ignore").warnings == []
    [text] = patch.build(patch.MERGE_PATCH, body, Pod, "Warn").warnings
    assert "metadata.labels.a" in text
    with pytest.raises(errors.BadRequest, match="strict decoding error"):
        patch.build(patch.MERGE_PATCH, body, Pod, "Strict")


def test_what_a_patch_makes_must_be_the_kind() -> None:
    row = resources.by_message(ConfigMap)
    assert patch.decode({"data": {"a": "b"}}, row, "Strict").message.data == {"a": "b"}
    with pytest.raises(errors.Invalid) as refused:
        patch.decode({"data": {"a": 1}}, row, "Ignore")
    assert refused.value.causes[0].field == "patch"
    with pytest.raises(errors.Invalid, match="unknown field"):
        patch.decode({"data": {"a": "b"}, "foo": 1}, row, "Strict")
    assert patch.decode({"foo": 1}, row, "Warn").warnings
    with pytest.raises(errors.BadRequest):
        patch.decode({"kind": "Secret"}, row, "Ignore")
