"""Every way in asks the authorizer, with the same attributes, before anything else is done."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.auth.authz import Attributes, Decision, Rules
from apiserver.auth.user import UserInfo
from apiserver.store.memory import MemoryStore
from podyard.api import errors, resources
from podyard.api.resources import Resource
from podyard.api.types import copy_of
from tests.component.apiserver.served import Certificates, serve
from tests.component.apiserver.wires import JSON, GrpcWire, RestWire, Wire
from tests.unit.apiserver.test_registry_rows import build as sample

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Nobody:
    """Refuses everything that is a resource and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Attributes] = []

    def authorize(self, attributes: Attributes) -> Decision:
        self.asked.append(attributes)
        return Decision(False, "not today")

    def rules(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(incomplete=True)


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


def calls(wire: Wire, row: Resource) -> list[Any]:
    obj = sample(row, "one")
    work = [
        wire.get(row, "one"),
        wire.list(row),
        _drain(wire.watch(row)),
        wire.create(row, copy_of(obj)),
        wire.update(row, obj),
        wire.patch(row, "one", "merge", {}),
        wire.delete(row, "one"),
    ]
    if "status" in row.subresources:
        work += [wire.update(row, obj, "status"), wire.patch(row, "one", "merge", {}, "status")]
    if "deletecollection" in row.verbs:
        work.append(wire.delete_collection(row))
    return work


async def test_every_verb_asks(certificates: Certificates) -> None:
    nobody, store = Nobody(), MemoryStore()
    async with serve(store, certificates, authorizer=nobody) as served:
        before = await served.revision()
        rest, rpc = RestWire(served, JSON), GrpcWire(served)
        for row in resources.RESOURCES:
            seen = []
            for wire in (rest, rpc):
                nobody.asked.clear()
                for work in calls(wire, row):
                    with pytest.raises(errors.Forbidden) as refused:
                        await work
                    assert refused.value.message.endswith(": not today")
                seen.append(list(nobody.asked))
            assert seen[0] == seen[1]
            assert {(asked.group, asked.resource) for asked in seen[0]} == {(row.group, row.plural)}
            assert {asked.user.name for asked in seen[0]} == {"kubernetes-admin"}
            assert "system:masters" in seen[0][0].user.groups
            assert {asked.verb for asked in seen[0]} == set(row.verbs)
        await rpc.close()
        async with served.session.get("/api/v1/namespaces/default/pods/one/status") as answer:
            assert answer.status == 403
            status = await answer.json()
        assert status["message"] == (
            'pods "one" is forbidden: User "kubernetes-admin" cannot get resource "pods/status" '
            'in API group "" in the namespace "default": not today'
        )
        assert status["details"] == {"name": "one", "kind": "pods"}
        async with served.session.get("/apis") as answer:
            assert (await answer.json())["message"] == (
                'forbidden: User "kubernetes-admin" cannot get path "/apis": not today'
            )
        assert await served.revision() == before
