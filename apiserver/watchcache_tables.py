"""The state that the watch cache holds of one resource: objects in key order, indexes, recent history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from apiserver.watchcache_events import CachedObject, Change


class Index:
    """Objects of one resource by a value of theirs, such as pods by node.

    Args:
        value_of: an object's value; None leaves the object out.
    """

    __slots__ = ("_by_value", "_value_of", "_values")

    def __init__(self, value_of: Callable[[CachedObject], str | None]) -> None:
        self._value_of = value_of
        self._values: dict[str, str] = {}
        self._by_value: dict[str, dict[str, CachedObject]] = {}

    def replace(self, key: str, object_: CachedObject | None) -> set[str]:
        """Follows a change; returns the values that the object had and has."""
        touched: set[str] = set()
        old = self._values.pop(key, None)
        if old is not None:
            touched.add(old)
            bucket = self._by_value[old]
            del bucket[key]
            if not bucket:
                del self._by_value[old]
        new = None if object_ is None else self._value_of(object_)
        if object_ is not None and new is not None:
            touched.add(new)
            self._values[key] = new
            self._by_value.setdefault(new, {})[key] = object_
        return touched

    def objects(self, value: str) -> list[CachedObject]:
        """In key order."""
        bucket = self._by_value.get(value, {})
        return [bucket[key] for key in sorted(bucket)]


class Table:
    """All objects of one resource, sorted by key."""

    __slots__ = ("_keys", "indexes", "objects", "resource")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.objects: dict[str, CachedObject] = {}
        self.indexes: dict[str, Index] = {}
        self._keys: list[str] = []

    def add_index(self, name: str, value_of: Callable[[CachedObject], str | None]) -> None:
        index = self.indexes[name] = Index(value_of)
        for key, object_ in self.objects.items():
            index.replace(key, object_)

    def apply(self, change: Change) -> None:
        """Takes over a change and notes in it the index values that it touches."""
        key, object_ = change.key, change.object
        if object_ is not None:
            if key not in self.objects:
                insort(self._keys, key)
            self.objects[key] = object_
        elif self.objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
        for name, index in self.indexes.items():
            for value in index.replace(key, object_):
                change.index_values.append((name, value))

    def load(self, objects: Iterable[CachedObject]) -> None:
        """Replaces everything without making history."""
        self.objects = {object_.key: object_ for object_ in objects}
        self._keys = sorted(self.objects)
        for name, index in self.indexes.items():
            self.add_index(name, index._value_of)

    def select(self, prefix: str, start_after: str = "") -> list[CachedObject]:
        """The objects whose keys start with `prefix` and come after `start_after`."""
        if prefix and not prefix.endswith("/"):
            found = self.objects.get(prefix)
            return [found] if found is not None and prefix > start_after else []
        objects, keys = self.objects, self._keys
        if not prefix or prefix == self.resource:
            low, high = 0, len(keys)
        else:
            low = bisect_left(keys, prefix)
            # "0" follows "/" in byte order: the first key after all of the prefix.
            high = bisect_left(keys, prefix[:-1] + "0", low)
        if start_after:
            low = max(low, bisect_right(keys, start_after))
        return [objects[key] for key in keys[low:high]]


# Changes of a resource that keep what was made of the states that they superseded.
_WARM = 256


class Ring:
    """The recent changes of one resource, complete after `floor`."""

    __slots__ = ("_changes", "floor", "size_bytes")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.size_bytes = 0
        self._changes: deque[Change] = deque()

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, change: Change) -> None:
        changes = self._changes
        changes.append(change)
        self.size_bytes += change.size_bytes
        if len(changes) > _WARM:
            # Messages and encodings take several times what the bytes take. Those who follow have had them
            # by now; who comes later has them made anew.
            changes[-_WARM - 1].release()

    @property
    def oldest(self) -> int:
        """The revision of the first change that is still here; there must be one."""
        return self._changes[0].revision

    def drop_oldest(self) -> None:
        change = self._changes.popleft()
        self.size_bytes -= change.size_bytes
        self.floor = change.revision

    def clear(self, floor: int) -> None:
        self._changes.clear()
        self.size_bytes = 0
        self.floor = floor

    def after(self, revision: int) -> list[Change]:
        """The changes after `revision`, in order."""
        found: list[Change] = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found


class Rings:
    """The history of all resources, bounded by events of each and by bytes of all.

    Each resource keeps its own, so that the renewals of a thousand leases do not shorten the
    history of pods; a watch of several resources merges them again.
    """

    def __init__(self, resources: Iterable[str], *, ring_events: int, ring_bytes: int) -> None:
        self._ring_events = ring_events
        self._ring_bytes = ring_bytes
        self._size_bytes = 0
        self._rings = {resource: Ring(0) for resource in resources}

    def append(self, change: Change) -> None:
        ring = self._rings[change.resource]
        self._size_bytes += change.size_bytes
        ring.append(change)
        if len(ring) > self._ring_events:
            self._drop_oldest(ring)
        while self._size_bytes > self._ring_bytes:
            self._drop_oldest(max(self._rings.values(), key=lambda ring: ring.size_bytes))

    def drop_until(self, revision: int) -> None:
        """Forgets all history up to a revision."""
        for ring in self._rings.values():
            while len(ring) and ring.oldest <= revision:
                self._drop_oldest(ring)

    def _drop_oldest(self, ring: Ring) -> None:
        before = ring.size_bytes
        ring.drop_oldest()
        self._size_bytes += ring.size_bytes - before

    def clear(self, floor: int) -> None:
        """Starts history anew: it is complete after `floor`."""
        self._size_bytes = 0
        for ring in self._rings.values():
            ring.clear(floor)

    def floor(self, resources: Iterable[str]) -> int:
        """The lowest revision that a watch of these resources may start from."""
        return max((self._rings[resource].floor for resource in resources), default=0)

    def after(self, resources: Iterable[str], revision: int) -> Iterator[Change]:
        """The changes of these resources after `revision`, in the one order."""
        parts = [self._rings[resource].after(revision) for resource in set(resources)]
        if len(parts) == 1:
            return iter(parts[0])
        return iter(sorted((change for part in parts for change in part), key=lambda change: change.order))
