"""The scale subresource: read, replaced and patched as autoscaling/v1 Scale, stored in the workload.

Counterpart: kubernetes pkg/registry/apps/deployment/storage ScaleREST.
"""

from __future__ import annotations

from typing import Any

import orjson

from apiserver import patch as patches
from apiserver.registry_options import check_names, check_write_options
from apiserver.registry_reading import Reader
from apiserver.registry_writing import Outcome, Writer
from podyard.api import codec, errors, validation_apps
from podyard.api.resources import Resource
from podyard.api.scale import SCALE, Scale, scale_of
from podyard.api.types import copy_of, meta_v1


class ScaleItem:
    """A Scale as the front ends want an object: message, JSON and protobuf bytes."""

    def __init__(self, message: Scale) -> None:
        self.message = message

    @property
    def raw(self) -> bytes:
        return self.message.SerializeToString()

    @property
    def json(self) -> bytes:
        return codec.encode_json(self.message, SCALE.api_version, SCALE.kind)


class Scaler:
    """Scales of every row that has the subresource."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer

    async def get(self, row: Resource, namespace: str, name: str) -> ScaleItem:
        """The present scale."""
        found = await self._reader.get(row, namespace, name)
        return ScaleItem(scale_of(found.message))

    async def update(
        self, row: Resource, namespace: str, name: str, scale: Scale, options: meta_v1.UpdateOptions
    ) -> ScaleItem:
        """Sets the wanted number.

        Raises:
            ApiError: NotFound, a body that names another, Conflict of a given resourceVersion or uid,
                negative numbers.
        """
        check_names(row, namespace, name, scale.metadata)
        return await self._write(row, namespace, name, lambda _: scale, dry_run=list(options.dryRun))

    async def patch(
        self,
        row: Resource,
        namespace: str,
        name: str,
        patch_type: str,
        body: bytes,
        options: meta_v1.PatchOptions,
    ) -> ScaleItem:
        """Patches the scale."""
        apply = patches.build(patch_type, body, Scale, options.fieldValidation or codec.WARN)

        def patched(present: Scale) -> Scale:
            value = apply(orjson.loads(codec.encode_json(present, SCALE.api_version, SCALE.kind)))
            wanted = codec.decode_value(value, Scale).message
            check_names(row, namespace, name, wanted.metadata)
            return wanted

        return await self._write(row, namespace, name, patched, dry_run=list(options.dryRun))

    async def _write(
        self, row: Resource, namespace: str, name: str, change: Any, *, dry_run: list[str]
    ) -> ScaleItem:
        check_write_options(meta_v1.UpdateOptions(dryRun=dry_run))

        def decide(state: Any) -> Outcome:
            if state is None:
                raise errors.NotFound.of(row.plural, name, row.group)
            old = state.view(row).message
            wanted: Scale = change(scale_of(old))
            causes = validation_apps.scale(wanted)
            if causes:
                raise errors.Invalid.of(SCALE.kind, name, causes, "autoscaling")
            new = copy_of(old)
            new.spec.replicas = wanted.spec.replicas
            new.metadata.resourceVersion = wanted.metadata.resourceVersion
            if wanted.metadata.uid:
                new.metadata.uid = wanted.metadata.uid
            return self._writer.updated(row, state, new, "")

        written = await self._writer.write(row, row.key(namespace, name), decide, dry_run=bool(dry_run))
        return ScaleItem(scale_of(written.object.view(row).message))
