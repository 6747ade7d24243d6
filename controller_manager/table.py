"""The controllers; the only module that knows them all."""

from __future__ import annotations

from controller_manager import (
    deployment,
    disruption,
    endpoints,
    endpointslice,
    garbage,
    namespace,
    nodeeviction,
    nodeipam,
    nodelifecycle,
    podgc,
    replicaset,
    rootca,
    serviceaccount,
    tainteviction,
)
from podyard.control.spec import ControllerSpec


def controllers(
    *, cluster_cidr: str, ca_pem: str, node_grace_s: float = nodelifecycle.GRACE_S
) -> tuple[ControllerSpec, ...]:
    """Every controller, in the order in which they start.

    Args:
        cluster_cidr: range of all pods.
        ca_pem: what pods trust.
        node_grace_s: how long a node may be silent.
    """
    return (
        nodeipam.controller(cluster_cidr),
        nodelifecycle.controller(node_grace_s),
        nodeeviction.controller(),
        tainteviction.controller(),
        serviceaccount.SERVICE_ACCOUNT,
        rootca.controller(ca_pem),
        namespace.NAMESPACE,
        replicaset.REPLICASET,
        deployment.DEPLOYMENT,
        endpointslice.ENDPOINT_SLICE,
        endpoints.ENDPOINTS,
        *disruption.controllers(),
        podgc.POD_GC,
        garbage.controller(),
    )
