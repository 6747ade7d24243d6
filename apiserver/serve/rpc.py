"""The typed services as a table of methods: gRPC method name -> handler.

Built by loops over the resource table; no service stub exists. `grpc_server` mounts the table,
`podyard.client.local_transport` calls it in process. Handlers authorize, call the registry and
answer a message or, where the bytes are at hand, the bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from apiserver.auth.authz import Attributes, Authorizer, require
from apiserver.auth.user import RequestContext
from apiserver.registry import Registry
from apiserver.serve.stream_rpc import DuplexCall, Send, StreamCalls, first_of
from apiserver.serve.streams import PodStreams
from podyard.api import codec, errors, resources
from podyard.api.errors import ApiError
from podyard.api.resources import Resource
from podyard.api.scale import Scale
from podyard.api.types import (
    SERVICE_MODULES,
    Binding,
    Message,
    Status,
    TokenRequest,
    Unknown,
    meta_v1,
    rpc,
)

# Operations of one bulk request; more would hold the loop for too long.
MAX_BULK_OPERATIONS = 1000

# Methods that update through a subresource.
_PARTS = {"UpdateStatus": "status", "UpdateApproval": "approval", "Finalize": "finalize"}


@dataclass(frozen=True, slots=True)
class Method:
    """One gRPC method.

    Attributes:
        handler: `async (context, request) -> message | bytes`, or an async generator of these
            when `streaming`; `async (context, requests, send) -> None` when `duplex`.
        duplex: both sides send as they like.
    """

    request: type[Message]
    response: type[Message]
    handler: Callable[..., Any]
    streaming: bool = False
    duplex: bool = False


class Services:
    """Builds the method table.

    Args:
        registry: the verbs.
        authorizer: asked before every call.
        streams: what comes from pods, see `apiserver.serve.streams`.
    """

    def __init__(self, registry: Registry, authorizer: Authorizer, streams: PodStreams) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._read_logs = streams.read_logs
        self._calls = StreamCalls(streams)

    def methods(self, rows: Iterable[Resource] = resources.OFFERED) -> dict[str, Method]:
        """Every method of every row, and the services for several kinds."""
        table: dict[str, Method] = {}
        for row in rows:
            for verb, method in self._row_methods(row).items():
                table[f"/{row.service}/{verb}"] = method
        table["/podyard.meta.v1.WatchService/Watch"] = Method(
            rpc.MultiWatchRequest, rpc.MultiWatchBatch, self._multi_watch, streaming=True
        )
        table["/podyard.meta.v1.BulkService/Write"] = Method(rpc.BulkRequest, rpc.BulkResponse, self._bulk)
        return table

    def _row_methods(self, row: Resource) -> dict[str, Method]:
        def bound(handler: Callable[..., Any]) -> Callable[[RequestContext, Any], Any]:
            return lambda context, request: handler(row, context, request)

        message, create = row.message, own(row, "CreateRequest")
        if row.is_review:
            return {"Create": Method(create, message, bound(self._create))}
        update = own(row, "UpdateRequest")
        table = {
            "Get": Method(rpc.GetRequest, message, bound(self._get)),
            "List": Method(rpc.ListRequest, row.list_message, bound(self._list)),
            "Watch": Method(rpc.ListRequest, own(row, "WatchBatch"), bound(self._watch), streaming=True),
            "Create": Method(create, message, bound(self._create)),
            "Update": Method(update, message, bound(self._update)),
            "Patch": Method(rpc.PatchRequest, message, bound(self._patch)),
            "Delete": Method(rpc.DeleteRequest, rpc.DeleteResponse, bound(self._delete)),
            "DeleteCollection": Method(
                rpc.DeleteCollectionRequest, row.list_message, bound(self._delete_collection)
            ),
        }
        offered = descriptor(row).methods_by_name
        for verb, subresource in _PARTS.items():
            if verb in offered:
                table[verb] = Method(update, message, bound(partial(self._update, subresource=subresource)))
        if "GetScale" in offered:
            table["GetScale"] = Method(rpc.GetRequest, Scale, bound(self._get_scale))
            table["UpdateScale"] = Method(rpc.ScaleUpdateRequest, Scale, bound(self._update_scale))
        if "Bind" in offered:
            table["Bind"] = Method(own(row, "BindRequest"), Status, bound(self._bind))
        if "Evict" in offered:
            table["Evict"] = Method(own(row, "EvictRequest"), Status, bound(self._evict))
        if "CreateToken" in offered:
            table["CreateToken"] = Method(
                own(row, "CreateTokenRequest"), TokenRequest, bound(self._create_token)
            )
        if "Logs" in offered:
            table["Logs"] = Method(own(row, "LogsRequest"), rpc.LogChunk, bound(self._logs), streaming=True)
        for verb, (answer, call) in self._calls.table.items():
            if verb in offered:
                handler = partial(self._duplex, row, verb.lower(), call)
                table[verb] = Method(own(row, f"{verb}Request"), answer, handler, duplex=True)
        return table

    def _allow(
        self,
        context: RequestContext,
        verb: str,
        row: Resource,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> None:
        require(
            self._authorizer,
            Attributes(context.user, verb, row.group, row.version, row.plural, subresource, namespace, name),
        )
        offered = row.subresource_verbs(subresource) if subresource else row.verbs
        if not offered:
            raise errors.NotFound.route()
        if verb not in offered:
            raise errors.MethodNotAllowed.route()

    async def _get(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "get", row, request.namespace, request.name)
        found = await self._registry.get(
            context, row, request.namespace, request.name, request.options.resourceVersion
        )
        return found.raw

    async def _list(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "list", row, request.namespace)
        listed = await self._registry.list(context, row, request.namespace, request.options)
        return codec.join_list(
            row.list_message,
            [item.raw for item in listed.items],
            listed.resource_version,
            listed.continue_token,
            listed.remaining,
        )

    async def _watch(self, row: Resource, context: RequestContext, request: Any) -> AsyncIterator[bytes]:
        self._allow(context, "watch", row, request.namespace)
        batch = own(row, "WatchBatch")
        async for frame in self._registry.watch(context, row, request.namespace, request.options):
            yield watch_batch(batch, frame)

    async def _create(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "create", row, request.namespace)
        made = await self._registry.create(context, row, request.namespace, request.object, request.options)
        return made.raw

    async def _update(
        self, row: Resource, context: RequestContext, request: Any, subresource: str = ""
    ) -> bytes:
        name = request.object.metadata.name
        self._allow(context, "update", row, request.namespace, name, subresource)
        updated, _ = await self._registry.update(
            context, row, request.namespace, name, request.object, request.options, subresource=subresource
        )
        return updated.raw

    async def _patch(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "patch", row, request.namespace, request.name, request.subresource)
        patched = await self._registry.patch(
            context,
            row,
            request.namespace,
            request.name,
            request.type,
            request.body,
            request.options,
            subresource=request.subresource,
            warnings=[],
        )
        return patched.raw

    async def _get_scale(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "get", row, request.namespace, request.name, "scale")
        return (await self._registry.scales.get(row, request.namespace, request.name)).raw

    async def _update_scale(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "update", row, request.namespace, request.name, "scale")
        item = await self._registry.scales.update(
            row, request.namespace, request.name, request.object, request.options
        )
        return item.raw

    async def _delete(self, row: Resource, context: RequestContext, request: Any) -> rpc.DeleteResponse:
        self._allow(context, "delete", row, request.namespace, request.name)
        result = await self._registry.delete(context, row, request.namespace, request.name, request.options)
        if result.object is None:
            return rpc.DeleteResponse(status=result.status)
        return rpc.DeleteResponse(object=unknown(row, result.object.raw))

    async def _delete_collection(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "deletecollection", row, request.namespace)
        deleted = await self._registry.delete_collection(
            context, row, request.namespace, request.options, request.list_options
        )
        return codec.join_list(
            row.list_message, [item.raw for item in deleted.items], deleted.resource_version, "", None
        )

    async def _bind(self, row: Resource, context: RequestContext, request: Any) -> Status:
        name = request.name or request.object.metadata.name
        self._allow(context, "create", row, request.namespace, name, "binding")
        return await self._registry.bind(context, request.namespace, name, request.object, request.options)

    async def _evict(self, row: Resource, context: RequestContext, request: Any) -> Status:
        name = request.name or request.object.metadata.name
        self._allow(context, "create", row, request.namespace, name, "eviction")
        return await self._registry.evictions.evict(request.namespace, name, request.object, request.options)

    async def _create_token(self, row: Resource, context: RequestContext, request: Any) -> bytes:
        self._allow(context, "create", row, request.namespace, request.name, "token")
        item = await self._registry.tokens.create(
            request.namespace, request.name, request.object, request.options
        )
        return item.raw

    async def _logs(
        self, row: Resource, context: RequestContext, request: Any
    ) -> AsyncIterator[rpc.LogChunk]:
        self._allow(context, "get", row, request.namespace, request.name, "log")
        async for data in self._read_logs(context, request.namespace, request.name, request.options):
            yield rpc.LogChunk(data=data)

    async def _duplex(
        self,
        row: Resource,
        subresource: str,
        call: DuplexCall,
        context: RequestContext,
        requests: AsyncIterator[Any],
        send: Send,
    ) -> None:
        """A stream of a pod: the first request says of which, and is what the authorizer is asked about."""
        start = await first_of(requests)
        self._allow(context, "create", row, start.namespace, start.name, subresource)
        await call(context, start, requests, send)

    async def _multi_watch(
        self, context: RequestContext, request: rpc.MultiWatchRequest
    ) -> AsyncIterator[rpc.MultiWatchBatch]:
        targets = []
        for target in request.targets:
            row = resources.by_plural(target.group, target.version, target.resource)
            self._allow(context, "watch", row, target.namespace)
            options = meta_v1.ListOptions(
                labelSelector=target.label_selector, fieldSelector=target.field_selector
            )
            targets.append((row, target.namespace, options))
        frames = self._registry.watch_many(
            context, targets, request.resource_version, send_initial_events=request.send_initial_events
        )
        async for row, frame in frames:
            # Parts of a batch that ends later have no revision: they are no place to resume from.
            version = str(frame.revision) if frame.revision else ""
            batch = rpc.MultiWatchBatch(resource_version=version, synced=frame.initial_events_end)
            for kind, item in frame.events:
                batch.events.add(type=kind, object=unknown(row, item.raw))
            yield batch

    async def _bulk(self, context: RequestContext, request: rpc.BulkRequest) -> rpc.BulkResponse:
        if len(request.operations) > MAX_BULK_OPERATIONS:
            raise errors.BadRequest(
                f"a bulk request holds at most {MAX_BULK_OPERATIONS} operations, this one has "
                f"{len(request.operations)}"
            )
        results = await gather_results(
            [partial(self._operation, context, operation) for operation in request.operations]
        )
        return rpc.BulkResponse(results=results)

    async def _operation(self, context: RequestContext, operation: rpc.BulkOperation) -> rpc.BulkResult:
        try:
            return rpc.BulkResult(object=await self._write(context, operation))
        except ApiError as error:
            return rpc.BulkResult(error=error.to_status())

    async def _write(self, context: RequestContext, operation: rpc.BulkOperation) -> bytes:
        row = resources.by_plural(operation.group, operation.version, operation.resource)
        namespace, verb = operation.namespace, operation.verb
        if verb == rpc.BulkOperation.BIND:
            binding = Binding.FromString(operation.object)
            bind: Any = own(row, "BindRequest")(namespace=namespace, name=operation.name, object=binding)
            return (await self._bind(row, context, bind)).SerializeToString()
        if verb == rpc.BulkOperation.DELETE:
            request = rpc.DeleteRequest(
                namespace=namespace, name=operation.name, options=operation.delete_options
            )
            return (await self._delete(row, context, request)).object.raw
        if verb == rpc.BulkOperation.PATCH:
            patch = rpc.PatchRequest(
                namespace=namespace,
                name=operation.name,
                type=operation.patch_type,
                body=operation.patch,
                subresource=operation.subresource,
            )
            return await self._patch(row, context, patch)
        obj = row.message.FromString(operation.object)
        if verb == rpc.BulkOperation.CREATE:
            create: Any = own(row, "CreateRequest")(namespace=namespace, object=obj)
            return await self._create(row, context, create)
        update: Any = own(row, "UpdateRequest")(namespace=namespace, object=obj)
        return await self._update(row, context, update, operation.subresource)


async def gather_results(works: list[Callable[[], Awaitable[rpc.BulkResult]]]) -> list[rpc.BulkResult]:
    """Results in order; a few at a time, so that one request can't crowd out the others.

    Cancellation: works that have not begun never do.
    """
    import asyncio

    limit = asyncio.Semaphore(32)

    async def one(work: Callable[[], Awaitable[rpc.BulkResult]]) -> rpc.BulkResult:
        async with limit:
            return await work()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(work)) for work in works]
    return [task.result() for task in tasks]


def own(row: Resource, suffix: str) -> type[Message]:
    """A row's own request or batch message, such as `PodCreateRequest`."""
    module = SERVICE_MODULES[row.service.rpartition(".")[0]]
    return cast("type[Message]", getattr(module, row.kind + suffix))


def descriptor(row: Resource) -> Any:
    """The descriptor of a row's service."""
    package, _, name = row.service.rpartition(".")
    return SERVICE_MODULES[package].DESCRIPTOR.services_by_name[name]


def unknown(row: Resource, raw: bytes) -> Unknown:
    """An object of any kind, with its kind."""
    return Unknown(typeMeta={"apiVersion": row.api_version, "kind": row.kind}, raw=raw)


def watch_batch(cls: type[Message], frame: Any) -> bytes:
    """A frame as the bytes of `<Kind>WatchBatch`; the objects' bytes are joined, not re-encoded.

    Fields of the batch: 1 events (each: 1 type, 2 object), 2 resource_version, 3 synced.
    """
    version = str(frame.revision) if frame.revision else ""
    tail: Any = cls(resource_version=version, synced=frame.initial_events_end)
    parts: list[bytes] = []
    for kind, item in frame.events:
        parts.append(codec.delimited(1, codec.delimited(1, kind.encode()) + codec.delimited(2, item.raw)))
    parts.append(tail.SerializeToString())
    return b"".join(parts)
