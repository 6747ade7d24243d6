"""What `up` was told of a cluster and every later command goes by: pure.

Kept in `cluster.yaml`, so that a plain `up` after a restart of the host brings the same cluster back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from podyard.api.node_labels import DEFAULT_LABELS
from podyard.base import config
from podyard.cluster.spec import (
    DEFAULT_NODE_GRACE_S,
    DEFAULT_TOLERATION_S,
    ClusterSpec,
    NodeOptions,
    Publication,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All of the wish but the cluster's name, image and number of nodes; see `ClusterSpec` for each."""

    node_grace_s: float = DEFAULT_NODE_GRACE_S
    toleration_s: int = DEFAULT_TOLERATION_S
    labels: tuple[tuple[str, str], ...] = ()
    etcd_members: int = 3
    schedulers: int = 1
    controller_managers: int = 1
    node_options: tuple[NodeOptions, ...] = ()
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    publish: tuple[Publication, ...] = ()
    extra_cas: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: ClusterSpec) -> Settings:
        """Those of a wish."""
        return cls(**{each.name: getattr(spec, each.name) for each in fields(cls)})

    def applied(self, spec: ClusterSpec) -> ClusterSpec:
        """The wish with these settings."""
        return replace(spec, **{each.name: getattr(self, each.name) for each in fields(self)})

    def fitting(self, nodes: int) -> Settings:
        """Without what is said of nodes after the first `nodes`."""
        publish = tuple(each for each in self.publish if each.node <= nodes)
        return replace(self, node_options=self.node_options[:nodes], publish=publish)

    def plain(self) -> dict[str, Any]:
        """As plain data, without what has its default."""
        default = Settings()
        kept = {
            name: value
            for name, value in asdict(self).items()
            if name in _ALWAYS or getattr(self, name) != getattr(default, name)
        }
        return {**kept, "labels": dict(self.labels)}

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Settings:
        """What `plain` made.

        Raises:
            ValueError: it is not of that form.
        """
        labels = [[str(key), str(value)] for key, value in dict(content.get("labels") or {}).items()]
        return config.build(cls, {**content, "labels": labels}, "settings")


_ALWAYS = frozenset({"node_grace_s", "toleration_s"})


def registered_differently(before: Settings, after: Settings, nodes: int) -> list[int]:
    """Which of the first `nodes` nodes (from 1) registered with taints or labels other than are wanted now.

    A node that is registered keeps both: a kubelet that comes back only sets its default labels right, and
    takes none away.
    """
    found = []
    for index in range(1, nodes + 1):
        then, now = (settings.applied(ClusterSpec()).options_of(index) for settings in (before, after))
        differ = {key for key, _ in set(then.labels) ^ set(now.labels)}
        if differ - (DEFAULT_LABELS & dict(now.labels).keys()) or set(then.taints) != set(now.taints):
            found.append(index)
    return found
