"""What OpenAPI says of kinds and fields: complete for the kinds that something here acts on, and plain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from apiserver.serve import openapi
from podyard.api import descriptions, facts
from podyard.api.resources import OFFERED

KINDS = frozenset(
    {
        *("Pod", "PodTemplate", "ReplicaSet", "Deployment", "Service", "Endpoints", "EndpointSlice", "Node"),
        *("Namespace", "ConfigMap", "Secret", "ServiceAccount", "Event", "Lease", "PodDisruptionBudget"),
        "PriorityClass",
    }
)
ROWS = list(facts.rows("descriptions"))
LONGEST = 200


def reached() -> Iterator[str]:
    """Messages that objects of these kinds, and their lists, consist of."""
    todo = [
        message.DESCRIPTOR.full_name
        for row in OFFERED
        if row.kind in KINDS
        for message in (row.message, row.list_message)
    ]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or name not in facts.fields():
            continue
        seen.add(name)
        yield name
        if openapi.has_fields(name):
            todo += [part for field in facts.fields()[name] for part in field.type.split(",")]


@pytest.mark.parametrize("message", sorted(reached()))
def test_every_field_of_what_is_acted_on_has_a_text(message: str) -> None:
    assert descriptions.of(message)
    if openapi.has_fields(message):
        names = [field.json_name for field in facts.fields()[message] if not field.inline]
        if facts.messages()[message].has_typemeta:
            names += ["apiVersion", "kind"]
        assert [name for name in names if not descriptions.of(message, name)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['message'].rpartition('.')[2]}.{row['field']}")
def test_every_text_is_of_something_and_plain(row: dict[str, str]) -> None:
    if row["message"] not in {descriptions.ANY_KIND, descriptions.ANY_LIST}:
        assert row["field"] in {"", *(field.json_name for field in facts.fields()[row["message"]])}
    assert re.fullmatch(r"[A-Z0-9][^\t]*[.]", row["text"]), row["text"]
    assert len(row["text"]) <= LONGEST
    assert not re.search(r"  |\.\.|[`*@]| ,", row["text"].replace("$(NAME)", "it"))


def test_no_text_stands_twice_for_one_thing() -> None:
    places = [(row["message"], row["field"]) for row in ROWS]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("path", "part"), [("/openapi/v2", ("definitions",)), ("/openapi/v3/api/v1", ("components", "schemas"))]
)
def test_documents_carry_the_texts(path: str, part: tuple[str, ...]) -> None:
    made = openapi.document(path, "application/json")
    assert made is not None
    schemas: Any = orjson.loads(made.body)
    for name in part:
        schemas = schemas[name]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["description"] == descriptions.of("k8s.io.api.core.v1.Pod")
    # Beside a reference too.
    assert pod["properties"]["spec"]["description"] == descriptions.of("k8s.io.api.core.v1.Pod", "spec")
    assert pod["properties"]["kind"]["description"] == descriptions.of("k8s.io.api.core.v1.Pod", "kind")
    items = schemas["io.k8s.api.core.v1.PodList"]["properties"]["items"]
    assert items["description"] == descriptions.of("k8s.io.api.core.v1.PodList", "items")
