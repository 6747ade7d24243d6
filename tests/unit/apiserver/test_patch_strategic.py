"""Strategic merge patches, by the documented rules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver import patch_strategic
from apiserver.patch_strategic import BadPatch, PatchMismatch
from podyard.api.types import Pod

POD = Pod.DESCRIPTOR.full_name


def merge(value: Any, change: Any) -> Any:
    before = copy.deepcopy(change)
    result = patch_strategic.merge(copy.deepcopy(value), change, POD)
    assert change == before
    return result


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": name} for name in names]}}


def names(value: Any, field: str = "containers", key: str = "name") -> list[str]:
    return [item[key] for item in value["spec"][field]]


def test_scalars_maps_and_nulls() -> None:
    value = {"metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"}, "spec": {"hostname": "h"}}
    change = {"metadata": {"labels": {"a": None, "c": "3"}}, "spec": {"hostname": "i", "nodeName": None}}
    assert merge(value, change) == {
        "metadata": {"labels": {"b": "2", "c": "3"}, "name": "x"},
        "spec": {"hostname": "i"},
    }


def test_list_items_merge_by_their_key() -> None:
    value = containers("a", "b")
    result = merge(value, {"spec": {"containers": [{"name": "b", "image": "new", "tty": True}]}})
    assert result["spec"]["containers"] == [
        {"name": "a", "image": "a"},
        {"name": "b", "image": "new", "tty": True},
    ]


def test_new_items_go_first_and_named_ones_take_the_patchs_order() -> None:
    added = merge(containers("a", "b"), {"spec": {"containers": [{"name": "c"}]}})
    assert names(added) == ["c", "a", "b"]
    swapped = merge(
        containers("a", "b", "c"),
        {"spec": {"containers": [{"name": "c", "tty": True}, {"name": "a", "tty": True}]}},
    )
    assert names(swapped).index("c") < names(swapped).index("a")


def test_nested_lists_merge_by_their_own_keys() -> None:
    value = {
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "command": ["x", "y"],
                    "volumeMounts": [{"mountPath": "/a", "name": "v"}],
                }
            ]
        }
    }
    change = {
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "env": [{"name": "Y", "value": "3"}, {"name": "X", "$patch": "delete"}],
                    "ports": [{"containerPort": 80, "name": "http"}],
                    "command": ["z"],
                    "volumeMounts": [{"mountPath": "/b", "name": "v"}],
                }
            ]
        }
    }
    [container] = merge(value, change)["spec"]["containers"]
    assert container["env"] == [{"name": "Y", "value": "3"}]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]
    assert container["command"] == ["z"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/a", "/b"}


def test_delete_directive_of_an_item() -> None:
    result = merge(containers("a", "b", "c"), {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}})
    assert names(result) == ["a", "c"]
    gone = merge({"spec": {}}, {"spec": {"containers": [{"name": "b", "$patch": "delete"}]}})
    assert gone == {"spec": {"containers": []}}


def test_replace_directive_of_a_list() -> None:
    result = merge(
        containers("a", "b"),
        {"spec": {"containers": [{"$patch": "replace"}, {"name": "z", "image": "z"}]}},
    )
    assert result == containers("z")


def test_replace_and_delete_directives_of_an_object() -> None:
    value = {"spec": {"securityContext": {"runAsUser": 1, "fsGroup": 2}}}
    replaced = merge(value, {"spec": {"securityContext": {"$patch": "replace", "fsGroup": 3}}})
    assert replaced == {"spec": {"securityContext": {"fsGroup": 3}}}
    deleted = merge(value, {"spec": {"securityContext": {"$patch": "delete"}}})
    assert deleted == {"spec": {"securityContext": {}}}


def test_retain_keys_of_a_volume() -> None:
    value = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}}
    change = {
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}
    }
    assert merge(value, change)["spec"]["volumes"] == [
        {"name": "v", "configMap": {"name": "c"}},
        {"name": "w", "emptyDir": {}},
    ]
    with pytest.raises(BadPatch, match="retainKeys"):
        merge(value, {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {}}]}})


def test_primitive_lists_are_sets() -> None:
    value = {"metadata": {"finalizers": ["a", "b"]}}
    assert set(merge(value, {"metadata": {"finalizers": ["b", "c"]}})["metadata"]["finalizers"]) == {
        "a",
        "b",
        "c",
    }
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert merge(value, change) == {"metadata": {"finalizers": ["b"]}}
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["z"]}}
    assert sorted(merge(value, change)["metadata"]["finalizers"]) == ["b", "z"]


def test_set_element_order() -> None:
    change = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "new"}, {"name": "a"}],
            "containers": [{"name": "new", "image": "new"}],
        }
    }
    # "b" is the server's own; it stood before "c", and so it stays.
    assert names(merge(containers("a", "b", "c"), change)) == ["b", "c", "new", "a"]
    only_order = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert names(merge(containers("a", "b"), only_order)) == ["b", "a"]
    primitives = {"metadata": {"$setElementOrder/finalizers": ["b", "a"]}}
    assert merge({"metadata": {"finalizers": ["a", "x", "b"]}}, primitives) == {
        "metadata": {"finalizers": ["x", "b", "a"]}
    }


def test_set_element_order_must_hold_what_the_patch_holds() -> None:
    for order in ([{"name": "a"}], [{"name": "b"}, {"name": "a"}]):
        change = {
            "spec": {
                "$setElementOrder/containers": order,
                "containers": [{"name": "a", "tty": True}, {"name": "b", "tty": True}],
            }
        }
        with pytest.raises(BadPatch, match="setElementOrder"):
            merge(containers("a", "b"), change)


def test_fields_of_inlined_messages_and_untyped_maps() -> None:
    value = {"spec": {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}}
    change = {"spec": {"volumes": [{"name": "v", "projected": {"sources": [], "defaultMode": 420}}]}}
    assert merge(value, change)["spec"]["volumes"] == [
        {"name": "v", "projected": {"sources": [], "defaultMode": 420}}
    ]


def test_what_is_new_carries_no_directives() -> None:
    change = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [
                {
                    "name": "a",
                    "$setElementOrder/env": [{"name": "X"}],
                    "env": [{"name": "X", "value": None}, {"name": "Y", "$patch": "delete"}],
                }
            ],
        }
    }
    assert merge({}, change) == {"spec": {"containers": [{"name": "a", "env": [{"name": "X"}]}]}}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"spec": {"$patch": "shuffle"}}, BadPatch, "unknown patch type shuffle in map"),
        (
            {"spec": {"containers": [{"image": "x"}]}},
            PatchMismatch,
            r"map: map\[image:x\] does not contain declared merge key: name",
        ),
        ({"spec": {"containers": ["x"]}}, PatchMismatch, "list element types"),
        ({"spec": {"$setElementOrder/containers": 1}}, BadPatch, "setElementOrder"),
    ],
)
def test_patches_that_do_not_fit(change: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        merge(containers("a"), change)


CONTAINERS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(CONTAINERS, CONTAINERS)
def test_order_of_a_merged_list(live: list[str], patched: list[str]) -> None:
    """The patch's items keep the patch's order, all others the order that they had; nothing is lost."""
    change = {"spec": {"containers": [{"name": name, "tty": True} for name in patched]}}
    result = names(merge(containers(*live), change))
    assert sorted(result) == sorted({*live, *patched})
    assert [name for name in result if name in patched] == patched
    assert [name for name in result if name not in patched] == [name for name in live if name not in patched]


@given(CONTAINERS, CONTAINERS)
def test_applying_twice_is_applying_once(live: list[str], patched: list[str]) -> None:
    change = {"spec": {"containers": [{"name": name, "tty": True} for name in patched]}}
    once = merge(containers(*live), change)
    assert merge(once, change) == once
