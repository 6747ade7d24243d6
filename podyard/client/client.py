"""Typed verbs over a transport, generic in the message type.

    client = Client(transport)
    pod = await client.get(Pod, "web", "default")
    async for batch in client.watch(Pod, resource_version=listed.resource_version): ...

Method names and request types come from the resource table, so a new kind needs nothing here.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, cast

import orjson

from podyard.api import errors, resources
from podyard.api.resources import Resource
from podyard.api.types import (
    SERVICE_MODULES,
    Binding,
    DeleteOptions,
    Eviction,
    M,
    Message,
    ServiceAccount,
    Status,
    TokenRequest,
    meta_v1,
    rpc,
)
from podyard.client.transport import DEFAULT_TIMEOUT_S, Transport

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Listed(Generic[M]):
    """A list at one moment; `resource_version` is where a watch goes on."""

    items: list[M]
    resource_version: str
    continue_token: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[M]):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: M


@dataclass(frozen=True, slots=True)
class WatchBatch(Generic[M]):
    """Events in the order in which they were stored.

    Attributes:
        resource_version: resume from here.
        synced: the initial events asked for have all been delivered.
    """

    events: list[WatchEvent[M]]
    resource_version: str
    synced: bool = False


def rpc_class(row: Resource, suffix: str) -> type[Message]:
    """The per-kind request or batch message of a row, such as `PodCreateRequest`."""
    module = SERVICE_MODULES[row.service.rpartition(".")[0]]
    return cast("type[Message]", getattr(module, row.kind + suffix))


class Client:
    """Verbs for every kind of the resource table.

    Args:
        transport: where the calls go.
        field_manager: name under which this client's writes are recorded.
    """

    def __init__(self, transport: Transport, field_manager: str = "") -> None:
        self.transport = transport
        self._field_manager = field_manager

    async def get(self, kind: type[M], name: str, namespace: str = "", *, resource_version: str = "") -> M:
        row = resources.by_message(kind)
        request = rpc.GetRequest(
            namespace=namespace, name=name, options=meta_v1.GetOptions(resourceVersion=resource_version)
        )
        return await self.transport.call(f"/{row.service}/Get", request, kind)

    async def list(
        self,
        kind: type[M],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        continue_token: str = "",
    ) -> Listed[M]:
        row = resources.by_message(kind)
        options = meta_v1.ListOptions(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            limit=limit,
        )
        setattr(options, "continue", continue_token)
        answer: Any = await self.transport.call(
            f"/{row.service}/List", rpc.ListRequest(namespace=namespace, options=options), row.list_message
        )
        token: str = getattr(answer.metadata, "continue")
        return Listed(list(answer.items), answer.metadata.resourceVersion, token)

    async def watch(
        self,
        kind: type[M],
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchBatch[M]]:
        """Batches of events after `resource_version`; with `send_initial_events` the state first.

        Raises:
            Expired: the version is too old; list again.
        """
        row = resources.by_message(kind)
        options = meta_v1.ListOptions(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            resourceVersion=resource_version,
            watch=True,
            allowWatchBookmarks=True,
        )
        if send_initial_events:
            options.sendInitialEvents = True
            options.resourceVersionMatch = "NotOlderThan"
        request = rpc.ListRequest(namespace=namespace, options=options)
        answers = self.transport.stream(f"/{row.service}/Watch", request, rpc_class(row, "WatchBatch"))
        async for answer in cast("AsyncIterator[Any]", answers):
            events = [WatchEvent(event.type, event.object) for event in answer.events]
            yield WatchBatch(events, answer.resource_version, answer.synced)

    async def create(self, obj: M, *, dry_run: bool = False) -> M:
        row, metadata = resources.by_message(type(obj)), cast("Any", obj).metadata
        request: Any = rpc_class(row, "CreateRequest")(
            namespace=metadata.namespace,
            object=obj,
            options=meta_v1.CreateOptions(
                fieldManager=self._field_manager, dryRun=["All"] if dry_run else []
            ),
        )
        return await self.transport.call(f"/{row.service}/Create", request, type(obj))

    async def update(self, obj: M, *, subresource: str = "") -> M:
        """Replaces an object; its `metadata.resourceVersion` guards against lost updates.

        Args:
            subresource: empty or "status".
        """
        row, metadata = resources.by_message(type(obj)), cast("Any", obj).metadata
        request: Any = rpc_class(row, "UpdateRequest")(
            namespace=metadata.namespace,
            object=obj,
            options=meta_v1.UpdateOptions(fieldManager=self._field_manager),
        )
        verb = {"": "Update", "status": "UpdateStatus", "finalize": "Finalize"}[subresource]
        return await self.transport.call(f"/{row.service}/{verb}", request, type(obj))

    async def patch(
        self,
        kind: type[M],
        name: str,
        namespace: str = "",
        *,
        body: Mapping[str, Any] | Sequence[Any] | bytes,
        patch_type: str = MERGE_PATCH,
        subresource: str = "",
    ) -> M:
        row = resources.by_message(kind)
        request = rpc.PatchRequest(
            namespace=namespace,
            name=name,
            type=patch_type,
            body=body if isinstance(body, bytes) else orjson.dumps(body),
            subresource=subresource,
            options=meta_v1.PatchOptions(fieldManager=self._field_manager),
        )
        return await self.transport.call(f"/{row.service}/Patch", request, kind)

    async def delete(
        self,
        kind: type[Message],
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
    ) -> None:
        """Deletes; the object may live on until its grace or its finalizers end.

        Args:
            grace_s: None leaves it to the object, 0 deletes at once.
            uid: only this incarnation; else `Conflict`.
            propagation: "Background", "Foreground" or "Orphan"; empty for the kind's default.
        """
        row = resources.by_message(kind)
        options = DeleteOptions()
        if grace_s is not None:
            options.gracePeriodSeconds = grace_s
        if uid:
            options.preconditions.uid = uid
        if resource_version:
            options.preconditions.resourceVersion = resource_version
        if propagation:
            options.propagationPolicy = propagation
        request = rpc.DeleteRequest(namespace=namespace, name=name, options=options)
        await self.transport.call(f"/{row.service}/Delete", request, rpc.DeleteResponse)

    async def delete_collection(
        self, kind: type[Message], namespace: str = "", *, label_selector: str = ""
    ) -> None:
        row = resources.by_message(kind)
        request = rpc.DeleteCollectionRequest(
            namespace=namespace, list_options=meta_v1.ListOptions(labelSelector=label_selector)
        )
        await self.transport.call(f"/{row.service}/DeleteCollection", request, row.list_message)

    async def bind(self, namespace: str, name: str, *, uid: str, node: str) -> None:
        """Assigns a pod to a node; `Conflict` when it is assigned already."""
        row = resources.by_message(resources.by_kind("v1", "Pod").message)
        binding = Binding(
            metadata={"name": name, "namespace": namespace, "uid": uid}, target={"kind": "Node", "name": node}
        )
        request: Any = rpc_class(row, "BindRequest")(namespace=namespace, name=name, object=binding)
        await self.transport.call(f"/{row.service}/Bind", request, Status)

    async def evict(self, pod: str, namespace: str, options: DeleteOptions | None = None) -> None:
        """Deletes a pod if its disruption budget allows that; `TooManyRequests` when it does not now."""
        row = resources.by_kind("v1", "Pod")
        eviction = Eviction(metadata={"name": pod, "namespace": namespace}, deleteOptions=options)
        request: Any = rpc_class(row, "EvictRequest")(namespace=namespace, name=pod, object=eviction)
        await self.transport.call(f"/{row.service}/Evict", request, Status)

    async def create_token(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        """A token of a service account, in the answer's status."""
        row = resources.by_message(ServiceAccount)
        call: Any = rpc_class(row, "CreateTokenRequest")(namespace=namespace, name=account, object=request)
        return await self.transport.call(f"/{row.service}/CreateToken", call, TokenRequest)

    async def bulk(
        self, operations: Sequence[rpc.BulkOperation], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> builtins.list[rpc.BulkResult]:
        """Many independent writes in one message; one result for each, in order."""
        answer = await self.transport.call(
            "/podyard.meta.v1.BulkService/Write",
            rpc.BulkRequest(operations=operations),
            rpc.BulkResponse,
            timeout_s=timeout_s,
        )
        return list(answer.results)


def error_of(result: rpc.BulkResult) -> errors.ApiError | None:
    """The error of one bulk result, None when it succeeded."""
    return errors.from_status(result.error) if result.HasField("error") else None
