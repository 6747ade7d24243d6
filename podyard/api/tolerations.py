"""Whether a toleration tolerates a taint. Pure; scheduler, kubelet and controllers all ask it.

Source: component-helpers scheduling/corev1, `ToleratesTaint`.
"""

from __future__ import annotations

from podyard.api.types import Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect matches every effect; an empty key with Exists matches every key."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value and bool(toleration.key or not taint.key)
    return toleration.operator == "Exists"
