"""The controllers; the only module that knows them all."""

from __future__ import annotations

from controller_manager import namespace, nodeipam, nodelifecycle, podgc, rootca, serviceaccount
from podyard.control.spec import ControllerSpec


def controllers(*, cluster_cidr: str, ca_pem: str) -> tuple[ControllerSpec, ...]:
    """Every controller, in the order in which they start."""
    return (
        nodeipam.controller(cluster_cidr),
        nodelifecycle.NODE_LIFECYCLE,
        serviceaccount.SERVICE_ACCOUNT,
        rootca.controller(ca_pem),
        namespace.NAMESPACE,
        podgc.POD_GC,
    )
