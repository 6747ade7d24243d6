"""The scale of a workload: its wanted and present number of replicas, as autoscaling/v1 Scale. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from podyard.api.types import LabelSelector, autoscaling_v1

Scale = autoscaling_v1.Scale


@dataclass(frozen=True, slots=True)
class ScaleKind:
    """What a row says of a kind, for this one that no row has."""

    kind: str = "Scale"
    api_version: str = "autoscaling/v1"
    message: type[Scale] = Scale


SCALE = ScaleKind()


def scale_of(obj: Any) -> Scale:
    """The scale of an object with `spec.replicas`, `spec.selector` and `status.replicas`."""
    scale = Scale()
    metadata = obj.metadata
    for name in ("name", "namespace", "uid", "resourceVersion"):
        setattr(scale.metadata, name, getattr(metadata, name))
    scale.metadata.creationTimestamp.CopyFrom(metadata.creationTimestamp)
    scale.spec.replicas = obj.spec.replicas
    scale.status.replicas = obj.status.replicas
    scale.status.selector = _text_of(obj.spec.selector)
    return scale


def _text_of(selector: Any) -> str:
    """A ReplicationController's selector is a plain map."""
    if isinstance(selector, LabelSelector):
        return selector_text(selector)
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector))


def selector_text(selector: Any) -> str:
    """A selector as clients send it: `a=b,c in (d,e)`."""
    terms = [f"{key}={selector.matchLabels[key]}" for key in sorted(selector.matchLabels)]
    for term in selector.matchExpressions:
        values = ",".join(sorted(term.values))
        shown = {
            "In": f"{term.key} in ({values})",
            "NotIn": f"{term.key} notin ({values})",
            "Exists": term.key,
            "DoesNotExist": f"!{term.key}",
        }
        terms.append(shown.get(term.operator, term.key))
    return ",".join(terms)
