"""The REST verbs on resources: a thin translation between HTTP and the registry."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from apiserver import registry_tokens
from apiserver.auth.authz import Attributes, Authorizer, require
from apiserver.auth.user import RequestContext
from apiserver.registry import Registry
from apiserver.registry_options import WriteOptions, check_write_options
from apiserver.registry_scale import ScaleItem
from apiserver.serve import answers, bodies, stream_rest
from apiserver.serve.body_kinds import check_kind
from apiserver.serve.negotiate import Form, form_of, watch_form_of
from apiserver.serve.params import options_from
from apiserver.serve.paths import ResourcePath
from apiserver.serve.rest_watch import WatchStream
from apiserver.serve.stream_rest import StreamHandlers
from apiserver.serve.streams import PodStreams
from podyard.api import codec, errors
from podyard.api.scale import SCALE, Scale
from podyard.api.types import (
    Binding,
    DeleteOptions,
    Eviction,
    ListOptions,
    TokenRequest,
    core_v1,
    meta_v1,
)
from podyard.base import clock

_APPLY = "application/apply-patch+yaml"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


class ObjectHandlers:
    """Answers requests below a resource path.

    Args:
        registry: the verbs.
        authorizer: asked before every one.
        streams: log, exec and the like, through the kubelets.
    """

    def __init__(self, registry: Registry, authorizer: Authorizer, streams: PodStreams) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._streams = streams
        self._stream_handlers = StreamHandlers(streams, authorizer)

    async def handle(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        """Answers one request.

        Raises:
            ApiError: the answer is this Status.
        """
        verb = self._verb(request, path)
        row = path.row
        attributes = Attributes(
            context.user,
            verb,
            row.group,
            row.version,
            row.plural,
            path.subresource,
            path.namespace,
            path.name,
        )
        require(self._authorizer, attributes)
        if path.subresource:
            self._check_subresource(request, path)
            if path.subresource == "log":
                return await self._log(request, context, path)
            if path.subresource in stream_rest.SUBRESOURCES:
                return await self._stream_handlers.handle(request, context, path)
            if path.subresource == "binding":
                return await self._bind(request, context, path)
            if path.subresource == "eviction":
                return await self._evict(request, path)
            if path.subresource == "token":
                return await self._token(request, path)
            if path.subresource == "scale":
                return await self._scale(request, path, verb)
        handler = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }[verb]
        return await handler(request, context, path)

    def _verb(self, request: web.Request, path: ResourcePath) -> str:
        if request.method not in ("GET", "HEAD"):
            return self._writing_verb(request.method, path)
        if path.name:
            verb = "get"
        else:
            verb = "watch" if options_from(ListOptions, request.query).watch else "list"
        if not path.subresource and verb not in path.row.verbs:
            raise errors.MethodNotAllowed.route()
        return verb

    def _writing_verb(self, method: str, path: ResourcePath) -> str:
        named = bool(path.name)
        verbs = {
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete" if named else "deletecollection",
        }
        verb = verbs.get(method)
        needs_name = verb in ("update", "patch")
        # Across all namespaces there is only reading.
        anywhere = path.row.namespaced and not path.namespace
        if (
            verb is None
            or (needs_name and not named)
            or (verb == "create" and named and not path.subresource)
            or anywhere
        ):
            raise errors.MethodNotAllowed.route()
        if not path.subresource and verb not in path.row.verbs:
            raise errors.MethodNotAllowed.route()
        return verb

    def _check_subresource(self, request: web.Request, path: ResourcePath) -> None:
        allowed = path.row.subresource_verbs(path.subresource)
        if not allowed:
            raise errors.NotFound.route()
        verb = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}.get(
            request.method
        )
        if verb not in allowed:
            raise errors.MethodNotAllowed.route()

    async def _get(self, request: web.Request, context: RequestContext, path: ResourcePath) -> web.Response:
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        version = request.query.get("resourceVersion", "")
        item = await self._registry.get(context, path.row, path.namespace, path.name, version)
        return self._object(request, path, item, form)

    async def _list(self, request: web.Request, context: RequestContext, path: ResourcePath) -> web.Response:
        form = form_of(request.headers.get("Accept", ""), answers.LIST_FORMS)
        options = options_from(ListOptions, request.query)
        listed = await self._registry.list(context, path.row, path.namespace, options)
        return self._listed(request, path, listed, form)

    def _listed(self, request: web.Request, path: ResourcePath, listed: Any, form: Form) -> web.Response:
        include = request.query.get("includeObject", "")
        body = answers.list_body(path.row, listed, form, now_s=clock.now_s(), include_object=include)
        return web.Response(body=body, headers={"Content-Type": answers.form_media(form)})

    async def _watch(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        forms = frozenset({answers.TABLE, answers.PARTIAL, answers.PARTIAL_LIST})
        form = watch_form_of(request.headers.get("Accept", ""), forms)
        options = options_from(ListOptions, request.query)
        frames = self._registry.watch(context, path.row, path.namespace, options)
        stream = WatchStream(path.row, form, request.query.get("includeObject", ""))
        return await stream.run(request, frames, float(options.timeoutSeconds))

    async def _create(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.Response:
        options = options_from(meta_v1.CreateOptions, request.query, request.query.getall)
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        body = await self._decoded(request, path.row.message, options)
        check_kind(body, path.row)
        said: list[str] = []
        item = await self._registry.create(
            context,
            path.row,
            path.namespace,
            body.message,
            options,
            name=path.name,
            subresource=path.subresource,
            warnings=said,
        )
        return self._object(request, path, item, form, status=201, warnings=[*body.warnings, *said])

    async def _update(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.Response:
        options = options_from(meta_v1.UpdateOptions, request.query, request.query.getall)
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        body = await self._decoded(request, path.row.message, options)
        check_kind(body, path.row)
        said: list[str] = []
        item, created = await self._registry.update(
            context,
            path.row,
            path.namespace,
            path.name,
            body.message,
            options,
            subresource=path.subresource,
            warnings=said,
        )
        status = 201 if created else 200
        return self._object(request, path, item, form, status=status, warnings=[*body.warnings, *said])

    async def _patch(self, request: web.Request, context: RequestContext, path: ResourcePath) -> web.Response:
        options = options_from(meta_v1.PatchOptions, request.query, request.query.getall)
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind not in _PATCH_TYPES:
            # Differs from upstream: apply patches are refused as unknown until server-side apply is served.
            raise errors.UnsupportedMediaType.of(_PATCH_TYPES)
        data = await bodies.read_body(request)
        warnings: list[str] = []
        item = await self._registry.patch(
            context,
            path.row,
            path.namespace,
            path.name,
            kind,
            data,
            options,
            subresource=path.subresource,
            warnings=warnings,
        )
        return self._object(request, path, item, form, warnings=warnings)

    async def _delete(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.Response:
        options = await self._delete_options(request)
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        result = await self._registry.delete(context, path.row, path.namespace, path.name, options)
        if result.object is not None:
            return self._object(request, path, result.object, form)
        return web.Response(
            body=answers.status_body(result.status, form.media), headers={"Content-Type": form.media}
        )

    async def _delete_collection(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.Response:
        options = await self._delete_options(request)
        form = form_of(request.headers.get("Accept", ""), answers.LIST_FORMS)
        selection = options_from(ListOptions, request.query)
        listed = await self._registry.delete_collection(context, path.row, path.namespace, options, selection)
        return self._listed(request, path, listed, form)

    async def _delete_options(self, request: web.Request) -> DeleteOptions:
        data = await bodies.read_body(request)
        if data.strip():
            content_type = request.headers.get("Content-Type", "")
            options = bodies.decode_body(data, content_type, DeleteOptions, "Ignore").message
            assert isinstance(options, DeleteOptions)
        else:
            options = options_from(DeleteOptions, request.query, request.query.getall)
        return options

    async def _bind(self, request: web.Request, context: RequestContext, path: ResourcePath) -> web.Response:
        options = options_from(meta_v1.CreateOptions, request.query, request.query.getall)
        body = await self._decoded(request, Binding, options)
        check_kind(body, path.row.subresources[path.subresource])
        assert isinstance(body.message, Binding)
        status = await self._registry.bind(context, path.namespace, path.name, body.message, options)
        form = form_of(request.headers.get("Accept", ""))
        return web.Response(
            status=201, body=answers.status_body(status, form.media), headers={"Content-Type": form.media}
        )

    async def _evict(self, request: web.Request, path: ResourcePath) -> web.Response:
        options = options_from(meta_v1.CreateOptions, request.query, request.query.getall)
        body = await self._decoded(request, Eviction, options)
        check_kind(body, path.row.subresources[path.subresource])
        assert isinstance(body.message, Eviction)
        status = await self._registry.evictions.evict(path.namespace, path.name, body.message, options)
        form = form_of(request.headers.get("Accept", ""))
        return web.Response(
            status=201, body=answers.status_body(status, form.media), headers={"Content-Type": form.media}
        )

    async def _token(self, request: web.Request, path: ResourcePath) -> web.Response:
        options = options_from(meta_v1.CreateOptions, request.query, request.query.getall)
        body = await self._decoded(request, TokenRequest, options)
        check_kind(body, path.row.subresources[path.subresource])
        assert isinstance(body.message, TokenRequest)
        item = await self._registry.tokens.create(path.namespace, path.name, body.message, options)
        form = form_of(request.headers.get("Accept", ""))
        return web.Response(
            status=201,
            body=answers.plain_body(
                item.raw, item.json, registry_tokens.API_VERSION, registry_tokens.KIND, form.media
            ),
            headers={"Content-Type": form.media},
        )

    async def _scale(self, request: web.Request, path: ResourcePath, verb: str) -> web.Response:
        scales, row = self._registry.scales, path.row
        if verb == "get":
            return self._scaled(request, await scales.get(row, path.namespace, path.name))
        if verb == "patch":
            options = options_from(meta_v1.PatchOptions, request.query, request.query.getall)
            kind = request.headers.get("Content-Type", "").partition(";")[0].strip()
            data = await bodies.read_body(request)
            item = await scales.patch(row, path.namespace, path.name, kind, data, options)
            return self._scaled(request, item)
        update = options_from(meta_v1.UpdateOptions, request.query, request.query.getall)
        body = await self._decoded(request, Scale, update)
        check_kind(body, row.subresources[path.subresource])
        assert isinstance(body.message, Scale)
        item = await scales.update(row, path.namespace, path.name, body.message, update)
        return self._scaled(request, item)

    def _scaled(self, request: web.Request, item: ScaleItem) -> web.Response:
        form = form_of(request.headers.get("Accept", ""), answers.OBJECT_FORMS)
        return self._answer(request, SCALE, item, form)

    async def _log(
        self, request: web.Request, context: RequestContext, path: ResourcePath
    ) -> web.StreamResponse:
        options = options_from(core_v1.PodLogOptions, request.query)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        chunks = self._streams.read_logs(context, path.namespace, path.name, options)
        try:
            async for chunk in chunks:
                # Errors before the first byte become a Status: the head is sent only now.
                if not response.prepared:
                    response.enable_chunked_encoding()
                    await response.prepare(request)
                await response.write(chunk)
            if not response.prepared:
                await response.prepare(request)
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]
        await response.write_eof()
        return response

    async def _decoded(self, request: web.Request, cls: Any, options: WriteOptions) -> bodies.Body:
        data = await bodies.read_body(request)
        check_write_options(options)
        content_type = request.headers.get("Content-Type", "")
        return bodies.decode_body(data, content_type, cls, options.fieldValidation or codec.WARN)

    def _object(
        self,
        request: web.Request,
        path: ResourcePath,
        item: Any,
        form: Form,
        *,
        status: int = 200,
        warnings: Any = (),
    ) -> web.Response:
        response = self._answer(request, path.row, item, form, status=status)
        for text in dict.fromkeys(warnings):
            response.headers.add("Warning", warning(text))
        return response

    def _answer(
        self, request: web.Request, kind: answers.Described, item: Any, form: Form, *, status: int = 200
    ) -> web.Response:
        include = request.query.get("includeObject", "")
        body = answers.object_body(kind, item, form, now_s=clock.now_s(), include_object=include)
        return web.Response(status=status, body=body, headers={"Content-Type": answers.form_media(form)})


def warning(text: str) -> str:
    """A Warning header's value."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'299 - "{escaped}"'
