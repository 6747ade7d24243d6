"""The generic verbs: read, default, admit, validate and store, for any row of the resource table.

Every transport calls these and nothing else. What is particular about a kind stands in
`apiserver.rules`; what is generic in the `registry_*` modules that this one joins:

    get, list, watch      registry_reading    from the watch cache
    create, update,
    patch, bind           registry_writing    decide on a state, store if the state still holds
    delete                registry_deleting   grace, finalizers, propagation
    scales, tokens,
    evictions             registry_scale, _tokens, _eviction   subresources of a kind of their own
    reviews               registry_reviews    answered, never stored

Counterpart: apiserver registry/generic/registry.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from apiserver.auth.authz import AlwaysAllow, Authorizer
from apiserver.auth.user import RequestContext
from apiserver.registry_deleting import Deleter, DeleteResult
from apiserver.registry_errors import translated
from apiserver.registry_eviction import Evictor
from apiserver.registry_objects import Item, object_maker
from apiserver.registry_reading import Frame, ListResult, Reader
from apiserver.registry_reviews import Reviews
from apiserver.registry_scale import Scaler
from apiserver.registry_tokens import Tokens
from apiserver.registry_view import CacheView, ClusterAddresses
from apiserver.registry_writing import Writer
from apiserver.rules import admission, certificates
from apiserver.store.base import Store
from apiserver.watchcache import WatchCache
from apiserver.watchcache_events import CachedObject
from podyard.api import errors, resources
from podyard.api.resources import Resource
from podyard.api.types import (
    Binding,
    Message,
    Namespace,
    Pod,
    Status,
    certificates_v1,
    copy_of,
    meta_v1,
)
from podyard.base import pki
from podyard.base.pki import SigningKey

__all__ = ["DeleteResult", "Frame", "Item", "ListResult", "Registry", "build_cache"]

# The class below has a `list` of its own.
_Texts = list[str]

DEFAULT_SERVICE_CIDR = "10.96.0.0/16"


def build_cache(store: Store, rows: Iterable[Resource] = resources.RESOURCES) -> WatchCache:
    """The watch cache of all rows, pods indexed by node. Its `run` follows the store."""
    rows = list(rows)
    prefixes = {row.storage_prefix for row in rows if row.storage is None}
    cache = WatchCache(store, resources=prefixes, make=object_maker(rows))
    for row in rows:
        if row.message is Pod:
            cache.add_index(row.storage_prefix, "spec.nodeName", _node_of)
    return cache


def _node_of(pod: CachedObject) -> str | None:
    return pod.fields.get("spec.nodeName") or None


class Registry:
    """The verbs.

    Args:
        cache: made by `build_cache`, running.
        admission_defaults: settings of the admission plugins.
        service_cidr: where Services get their cluster addresses from, IPv4.
        token_key: signs service-account tokens; None makes one, which dies with the process.
        authorizer: what reviews of access say; None allows everything.
    """

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        *,
        admission_defaults: admission.Defaults = admission.Defaults(),
        service_cidr: str = DEFAULT_SERVICE_CIDR,
        token_key: SigningKey | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        view = CacheView(cache)

        def admit(attributes: admission.Attributes) -> None:
            admission.admit(attributes, view, admission_defaults)

        self.cache = cache
        self._reader = Reader(store, cache)
        self._writer = Writer(store, cache, self._reader, admit, ClusterAddresses(cache, service_cidr))
        self._deleter = Deleter(self._writer, self._reader, admit)
        self.evictions = Evictor(self._reader, self._writer, self._deleter, cache)
        self.scales = Scaler(self._reader, self._writer)
        self.tokens = Tokens(self._reader, cache, token_key or pki.new_signing_key())
        self.reviews = Reviews(authorizer or AlwaysAllow(), self.tokens)

    async def get(
        self, ctx: RequestContext, row: Resource, namespace: str, name: str, resource_version: str = ""
    ) -> Item:
        """See `Reader.get`."""
        return await self._reader.get(row, namespace, name, resource_version)

    async def list(
        self, ctx: RequestContext, row: Resource, namespace: str, options: meta_v1.ListOptions
    ) -> ListResult:
        """See `Reader.list`."""
        return await self._reader.list(row, namespace, options)

    def watch(
        self, ctx: RequestContext, row: Resource, namespace: str, options: meta_v1.ListOptions
    ) -> AsyncGenerator[Frame, None]:
        """See `Reader.watch`; close the generator."""
        return self._reader.watch(row, namespace, options)

    def watch_many(
        self,
        ctx: RequestContext,
        targets: Iterable[tuple[Resource, str, meta_v1.ListOptions]],
        resource_version: str,
        *,
        send_initial_events: bool = False,
    ) -> AsyncIterator[tuple[Resource, Frame]]:
        """See `Reader.watch_many`; close the generator."""
        return self._reader.watch_many(targets, resource_version, send_initial_events=send_initial_events)

    async def create(
        self,
        ctx: RequestContext,
        row: Resource,
        namespace: str,
        obj: Message,
        options: meta_v1.CreateOptions,
        *,
        name: str = "",
        subresource: str = "",
        warnings: _Texts | None = None,
    ) -> Item:
        """See `Writer.create`. `name` is the path's, which only subresources have."""
        if subresource:
            raise errors.MethodNotAllowed.of(f"{row.plural}/{subresource}", "create", row.group)
        if row.is_review:
            return await self.reviews.create(ctx, row, namespace, obj, options)
        if isinstance(obj, certificates_v1.CertificateSigningRequest):
            obj = copy_of(obj)
            certificates.name_requester(obj, ctx.user)
        said = [] if warnings is None else warnings
        return await self._writer.create(row, namespace, obj, options, warnings=said)

    async def update(
        self,
        ctx: RequestContext,
        row: Resource,
        namespace: str,
        name: str,
        obj: Message,
        options: meta_v1.UpdateOptions,
        *,
        subresource: str = "",
        warnings: _Texts | None = None,
    ) -> tuple[Item, bool]:
        """See `Writer.update`."""
        said = [] if warnings is None else warnings
        return await self._writer.update(
            row, namespace, name, obj, options, subresource=subresource, warnings=said
        )

    async def patch(
        self,
        ctx: RequestContext,
        row: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        body: bytes,
        options: meta_v1.PatchOptions,
        *,
        subresource: str = "",
        warnings: _Texts | None = None,
    ) -> Item:
        """See `Writer.patch`."""
        return await self._writer.patch(
            row,
            namespace,
            name,
            patch_type,
            body,
            options,
            subresource=subresource,
            warnings=[] if warnings is None else warnings,
        )

    async def delete(
        self, ctx: RequestContext, row: Resource, namespace: str, name: str, options: meta_v1.DeleteOptions
    ) -> DeleteResult:
        """See `Deleter.delete`."""
        result = await self._deleter.delete(row, namespace, name, options)
        if row.message is Namespace and result.object is not None:
            # Admission reads the cache: whoever was told that the namespace ends must find it closed.
            with translated():
                await self.cache.wait_until(result.object.revision)
        return result

    async def delete_collection(
        self,
        ctx: RequestContext,
        row: Resource,
        namespace: str,
        options: meta_v1.DeleteOptions,
        list_options: meta_v1.ListOptions,
    ) -> ListResult:
        """See `Deleter.delete_collection`."""
        return await self._deleter.delete_collection(row, namespace, options, list_options)

    async def bind(
        self,
        ctx: RequestContext,
        namespace: str,
        name: str,
        binding: Binding,
        options: meta_v1.CreateOptions,
    ) -> Status:
        """See `Writer.bind`."""
        return await self._writer.bind(resources.by_message(Pod), namespace, name, binding, options)
