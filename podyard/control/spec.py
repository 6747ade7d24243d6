"""The row that a controller is: what it watches and its pure reconcile function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podyard.api.types import Key, Message
from podyard.control.actions import Actions
from podyard.control.view import View

Reconcile = Callable[[View, Key], Actions]
# (old, new, view) -> keys of the main kind that this change concerns; old or new may be None.
KeysOf = Callable[[Any, Any, View], Iterable[Key]]
# (client, view, key) -> facts; asynchronous.
Gather = Callable[[Any, View, Key], Awaitable[Any]]
IndexFunction = Callable[[Any], Iterable[str]]


SINGLE = Key("", "")


@dataclass(frozen=True)
class ControllerSpec:
    """One controller.

    Attributes:
        name: as upstream names it, in logs, metrics and as the events' source.
        for_: the main kind; every change of such an object enqueues its key.
        reconcile: (view, key) -> actions. Pure: it reads nothing but the view.
        owns: kinds whose changes enqueue their controller owner.
        maps: kind -> function from a change to keys of the main kind.
        reads: kinds that are only read.
        indexes: kind -> index name -> function.
        workers: how many keys at once.
        reporter: the events' source, such as "replicaset-controller"; the process's own when empty.
        own_keys: a change of the main kind enqueues its key. Without, `maps` alone say which keys there
            are, and what they mean: for decisions about objects of many kinds.
        single: every change enqueues one and the same key, `SINGLE`: for decisions over all objects.
        period_s: with `single`: reconcile every so many cluster seconds, whatever changes.
        gather: reads what informers do not have, before each reconcile; lands in `view.facts`.
    """

    name: str
    for_: type[Message]
    reconcile: Reconcile
    owns: tuple[type[Message], ...] = ()
    maps: Mapping[type[Message], KeysOf] = field(default_factory=dict)
    reads: tuple[type[Message], ...] = ()
    indexes: Mapping[type[Message], Mapping[str, IndexFunction]] = field(default_factory=dict)
    workers: int = 4
    reporter: str = ""
    own_keys: bool = True
    single: bool = False
    period_s: float | None = None
    gather: Gather | None = None

    @property
    def kinds(self) -> tuple[type[Message], ...]:
        """Every kind that must be watched."""
        return tuple(dict.fromkeys((self.for_, *self.owns, *self.maps, *self.reads)))
