"""The table of kinds: what it says of keys and fields, and that every row's functions bear any object."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.rules import strategy
from podyard.api import codec, columns, defaults, facts, resources, validation
from podyard.api.errors import BadRequest, NotFound
from podyard.api.resources import RESOURCES, Resource
from podyard.api.types import Event, EventsV1Event, Key, Pod

_spec = importlib.util.spec_from_file_location("random_objects", Path(__file__).parent / "random_messages.py")
assert _spec is not None
assert _spec.loader is not None
random_messages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random_messages)

rows = pytest.mark.parametrize("row", RESOURCES, ids=lambda row: row.qualified)


@pytest.mark.parametrize(
    ("api_version", "kind", "key"),
    [
        ("v1", "Pod", "/registry/pods/ns/n"),
        ("v1", "Node", "/registry/minions/n"),
        ("v1", "Service", "/registry/services/specs/ns/n"),
        ("v1", "Endpoints", "/registry/services/endpoints/ns/n"),
        ("coordination.k8s.io/v1", "Lease", "/registry/leases/ns/n"),
        ("events.k8s.io/v1", "Event", "/registry/events/ns/n"),
    ],
)
def test_keys_are_upstreams(api_version: str, kind: str, key: str) -> None:
    row = resources.by_kind(api_version, kind)
    assert row.key("ns" if row.namespaced else "", "n") == key
    assert row.name_of(key) == Key("ns" if row.namespaced else "", "n")
    assert key.startswith(row.prefix("ns" if row.namespaced else ""))


@rows
def test_rows_are_found_by_all_their_names(row: Resource) -> None:
    assert resources.by_plural(row.group, row.version, row.plural) is row
    assert resources.by_kind(row.api_version, row.kind) is row
    assert resources.by_message(row.message) is row


def test_unknown_rows() -> None:
    assert resources.find_plural("", "v1", "nothings") is None
    for look_up in (
        lambda: resources.by_plural("", "v1", "nothings"),
        lambda: resources.by_kind("v1", "Nothing"),
        lambda: resources.by_message(type(Pod().spec)),
    ):
        with pytest.raises(NotFound, match="could not find the requested resource"):
            look_up()


def test_events_are_views_of_one_storage() -> None:
    row = resources.by_message(EventsV1Event)
    assert row.storage_row is resources.by_message(Event)
    assert row.to_storage is not None
    assert row.from_storage is not None
    view = random_messages.fill(EventsV1Event(), random.Random(7))
    # The series' state went with the deprecated fields that events.k8s.io does not have.
    assert codec.same(row.from_storage(row.to_storage(view)), view)


def test_subresources_are_those_served() -> None:
    pods = resources.by_message(Pod)
    assert set(pods.subresources) == {"status", "binding", "eviction", "log", "exec", "attach", "portforward"}
    assert pods.subresource_verbs("status") == ("get", "patch", "update")
    assert pods.subresource_verbs("exec") == ("create", "get")
    assert pods.subresource_verbs("proxy") == ()


@rows
def test_selectable_fields_equal_the_table(row: Resource) -> None:
    labels = {
        entry["field_label"]
        for entry in facts.rows("field_selectors")
        if (entry["group_version"], entry["kind"]) == (row.api_version, row.kind)
    }
    accepted = labels | {"metadata.name", "metadata.namespace"}
    assert {label for label in accepted if row.field_label(label)} == accepted
    assert set(row.fields) | set(row.aliases) == labels - {"metadata.name", "metadata.namespace"}
    with pytest.raises(BadRequest, match=r"spec\.nothing"):
        row.field_label("spec.nothing")


def test_pod_fields() -> None:
    pod = Pod(metadata={"name": "a", "namespace": "b"}, spec={"nodeName": "n"}, status={"phase": "Running"})
    fields = resources.by_message(Pod).fields_of(pod)
    assert (fields["metadata.name"], fields["spec.nodeName"], fields["status.phase"]) == ("a", "n", "Running")
    assert fields["spec.hostNetwork"] == "false"
    assert resources.by_message(Pod).field_label("spec.host") == "spec.nodeName"


@rows
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_object_breaks_a_row(row: Resource, seed: int) -> None:
    rng = random.Random(seed)
    obj: Any = random_messages.fill(row.message(), rng)
    row.defaults(obj)
    once = codec.to_dict(obj)
    row.defaults(obj)
    assert codec.to_dict(obj) == once, "defaults are not stable"
    other: Any = random_messages.fill(row.message(), rng)
    row.defaults(other)
    assert all(cause.reason and cause.field for cause in row.validate(obj))
    assert all(cause.reason and cause.field for cause in row.validate_update(obj, other))
    table = columns.table(row, [obj, other], 2_000_000_000.0)
    # Upstream's table has a cell without a column for one kind.
    width = len(table["columnDefinitions"]) + (row.kind == "IPAddress")
    assert [len(line["cells"]) for line in table["rows"]] == [width, width]
    assert set(row.fields_of(obj)) >= set(row.fields)


def test_every_persisted_kind_is_served() -> None:
    persisted = {
        (entry["group"], entry["version"], entry["plural"])
        for entry in facts.rows("resources")
        if entry["etcd_key_template"] and not entry["subresource"]
    }
    # These two extend the API itself, which this server does not do yet.
    later = {
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "v1", "apiservices"),
    }
    assert {(row.group, row.version, row.plural) for row in RESOURCES} == persisted - later


@rows
def test_no_row_is_without_its_functions(row: Resource) -> None:
    assert row.message in validation.VALIDATE
    assert row.message in validation.VALIDATE_UPDATE
    if "status" in row.subresources:
        assert "status" in strategy.strategy_of(row).parts
    printed = {entry["source"] for entry in facts.rows("printer_columns") if entry["kind"] == row.kind}
    assert printed, "no columns in the table"
    assert (row.message in columns.CELLS) == ("internal printers" in printed)
    defaulted = {
        entry["kind"]
        for entry in facts.rows("defaults")
        if entry["group_version"] == row.api_version and entry["source"] == "function"
    }
    if row.kind in defaulted - {"ConfigMap"}:
        assert row.message in defaults.DEFAULTS
