"""Labels of nodes that are the kubelet's own matter. Pure; it imports nothing, as the command line needs it.

Upstream: of the domains kubernetes.io and k8s.io a kubelet may give its own node these, and whatever is in
its own two domains; when it comes back it sets these right, and no others.
"""

from __future__ import annotations

DEFAULT_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
