"""A client that writes known contents and watches them, and can say afterwards what went wrong.

Every write's outcome is known in the end: acknowledged with its revision, refused, or (the
connection broke) looked up. The watch resumes from its last batch. Then what was watched must be
what was written: none missing, none doubled, none out of order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import ConfigMap
from podyard.client.client import Client
from tests.cluster.live import eventually_async

_RETRYABLE = (errors.Unavailable, errors.Timeout, errors.ServerTimeout, errors.InternalError)
_NAMES = ("a", "b", "c")
# So that a run of minutes writes thousands of times, not hundreds of thousands.
_PACE_S = 0.03


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one object; `content` is empty for its end."""

    name: str
    revision: int
    content: str


@dataclass
class Ledger:
    """Writes and watches ConfigMaps of one namespace."""

    writer: Client
    watcher: Client
    namespace: str
    written: list[Entry] = field(default_factory=list)
    seen: list[Entry] = field(default_factory=list)
    unknown_outcomes: int = 0
    resumes: int = 0
    progress: int = 0

    async def start(self) -> None:
        """Finds where the watch begins."""
        listed = await self.watcher.list(ConfigMap, self.namespace)
        assert [item.metadata.name for item in listed.items if item.metadata.name in _NAMES] == []
        self.progress = int(listed.resource_version)

    async def write_for_ever(self, stop: asyncio.Event) -> None:
        """Creates, updates and deletes in turns until `stop`."""
        number = 0
        while not stop.is_set():
            for name in _NAMES:
                number += 1
                await self._step(name, number)
                await asyncio.sleep(_PACE_S)

    async def _step(self, name: str, number: int) -> None:
        known = next((entry for entry in reversed(self.written) if entry.name == name), None)
        content = f"{name}-{number}"
        if known is None or not known.content:
            await self._settle(name, content, None)
        elif number % 7 == 0:
            await self._settle(name, "", known)
        else:
            await self._settle(name, content, known)

    async def _settle(self, name: str, content: str, known: Entry | None) -> None:
        try:
            revision = await self._write(name, content, known)
        except _RETRYABLE:
            self.unknown_outcomes += 1
            revision = await self._look_up(name, content, known)
        if revision is not None:
            self.written.append(Entry(name, revision, content))

    async def _write(self, name: str, content: str, known: Entry | None) -> int | None:
        """The write's revision; 0 for a delete, whose answer has none."""
        if not content:
            assert known is not None
            await self.writer.delete(ConfigMap, name, self.namespace, resource_version=str(known.revision))
            return 0
        wanted = ConfigMap(metadata={"name": name, "namespace": self.namespace}, data={"content": content})
        if known is None:
            made = await self.writer.create(wanted)
        else:
            wanted.metadata.resourceVersion = str(known.revision)
            made = await self.writer.update(wanted)
        assert dict(made.data) == {"content": content}
        return int(made.metadata.resourceVersion)

    async def _look_up(self, name: str, content: str, known: Entry | None) -> int | None:
        """The revision of a write whose answer was lost; None when it did not happen.

        The write may still be on its way: whoever looks writes again with the old revision, so
        exactly one of both can win. Here the watch decides: what it shows happened.
        """
        while True:
            try:
                found = await self.writer.get(ConfigMap, name, self.namespace)
            except errors.NotFound:
                return 0 if known is not None and not content else None
            except ApiError:
                await asyncio.sleep(0.1)
                continue
            if content and dict(found.data) == {"content": content}:
                return int(found.metadata.resourceVersion)
            return None

    async def watch_for_ever(self) -> None:
        """Watches until cancelled; any end but a broken connection is an error."""
        while True:
            try:
                async for batch in self.watcher.watch(
                    ConfigMap, self.namespace, resource_version=str(self.progress)
                ):
                    for event in batch.events:
                        if event.type != "BOOKMARK" and event.object.metadata.name in _NAMES:
                            self._note(event.type, event.object)
                    self.progress = int(batch.resource_version or self.progress)
            except _RETRYABLE:
                pass
            self.resumes += 1
            await asyncio.sleep(0.1)

    def _note(self, type_: str, obj: ConfigMap) -> None:
        content = "" if type_ == "DELETED" else obj.data["content"]
        self.seen.append(Entry(obj.metadata.name, int(obj.metadata.resourceVersion), content))

    async def catch_up(self) -> None:
        """Returns once the watch has shown the last write."""
        listed = await self.watcher.list(ConfigMap, self.namespace)
        present = {
            item.metadata.name: item.data["content"] for item in listed.items if item.metadata.name in _NAMES
        }

        async def seen() -> bool:
            return final_state(self.seen) == present

        await eventually_async(seen, what="the watch shows the last write")

    def problems(self) -> list[str]:
        """What the watch showed and the writes do not explain, and the other way round."""
        found = []
        for before, after in zip(self.seen, self.seen[1:], strict=False):
            if after.revision <= before.revision:
                found.append(f"out of order or doubled: {before} then {after}")
        for name in _NAMES:
            wrote = [entry for entry in self.written if entry.name == name]
            saw = [entry for entry in self.seen if entry.name == name]
            if [entry.content for entry in wrote] != [entry.content for entry in saw]:
                found.append(f"{name}: " + first_difference(wrote, saw))
                continue
            for left, right in zip(wrote, saw, strict=True):
                if left.revision and left.revision != right.revision:
                    found.append(f"acknowledged {left}, watched {right}")
        return found


def final_state(entries: Iterable[Entry]) -> dict[str, str]:
    """Name -> content after all entries."""
    state: dict[str, str] = {}
    for entry in entries:
        state[entry.name] = entry.content
    return {name: content for name, content in state.items() if content}


def first_difference(wrote: list[Entry], saw: list[Entry]) -> str:
    """Where two lists part."""
    for index in range(max(len(wrote), len(saw))):
        left = wrote[index] if index < len(wrote) else None
        right = saw[index] if index < len(saw) else None
        if left is None or right is None or left.content != right.content:
            around = slice(max(index - 1, 0), index + 2)
            return f"written {wrote[around]} but watched {saw[around]}"
    return "no difference"
