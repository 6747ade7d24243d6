"""The registry's verbs in short, for tests."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from apiserver.auth.user import RequestContext, UserInfo
from apiserver.registry import DeleteResult, Item, ListResult, Registry
from apiserver.store.memory import MemoryStore
from podyard.api import resources
from podyard.api.errors import ApiError
from podyard.api.types import DeleteOptions, ListOptions, Message, Pod, meta_v1

CONTEXT = RequestContext(UserInfo("tester"))


@dataclass
class Api:
    """The registry's verbs in short."""

    store: MemoryStore
    registry: Registry

    async def create(self, obj: Any, namespace: str = "", **options: Any) -> Item:
        row = resources.by_message(type(obj))
        return await self.registry.create(
            CONTEXT,
            row,
            namespace or obj.metadata.namespace,
            obj,
            meta_v1.CreateOptions(**options),
        )

    async def get(
        self, kind: type[Message], name: str, namespace: str = "default", version: str = ""
    ) -> Item:
        row = resources.by_message(kind)
        return await self.registry.get(CONTEXT, row, namespace if row.namespaced else "", name, version)

    async def list(self, kind: type[Message], namespace: str = "", **options: Any) -> ListResult:
        row = resources.by_message(kind)
        return await self.registry.list(CONTEXT, row, namespace, ListOptions(**options))

    def watch(self, kind: type[Message], namespace: str = "", **options: Any) -> Any:
        row = resources.by_message(kind)
        return self.registry.watch(CONTEXT, row, namespace, ListOptions(**options))

    async def update(
        self, obj: Any, *, name: str = "", subresource: str = "", **options: Any
    ) -> tuple[Item, bool]:
        row, metadata = resources.by_message(type(obj)), obj.metadata
        return await self.registry.update(
            CONTEXT,
            row,
            metadata.namespace,
            name or metadata.name,
            obj,
            meta_v1.UpdateOptions(**options),
            subresource=subresource,
        )

    async def patch(
        self,
        kind: type[Message],
        name: str,
        body: bytes,
        *,
        namespace: str = "default",
        how: str = "merge",
        subresource: str = "",
        warnings: Any = None,
        **options: Any,
    ) -> Item:
        row = resources.by_message(kind)
        types = {"merge": "merge-patch", "json": "json-patch", "strategic": "strategic-merge-patch"}
        return await self.registry.patch(
            CONTEXT,
            row,
            namespace if row.namespaced else "",
            name,
            f"application/{types[how]}+json",
            body,
            meta_v1.PatchOptions(**options),
            subresource=subresource,
            warnings=warnings,
        )

    async def delete(
        self, kind: type[Message], name: str, namespace: str = "default", **options: Any
    ) -> DeleteResult:
        row = resources.by_message(kind)
        return await self.registry.delete(
            CONTEXT, row, namespace if row.namespaced else "", name, DeleteOptions(**options)
        )


def pod(name: str = "web", **metadata: Any) -> Pod:
    return Pod(
        metadata={"name": name, "namespace": "default", **metadata},
        spec={"containers": [{"name": "main", "image": "nginx"}]},
    )


async def refused(work: Awaitable[Any]) -> ApiError:
    """The error that an attempt must end in."""
    try:
        await work
    except ApiError as error:
        return error
    raise AssertionError("it was not refused")
