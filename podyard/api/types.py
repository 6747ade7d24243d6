"""Short names for the generated messages; the only module that imports `podyard.api.gen`.

Kubernetes' core types stand here under their own names, other groups as modules (`apps_v1`,
`meta_v1`, ...), the CRI as `cri`, and our own request messages as `rpc`. Messages are upb
objects: cheap to copy, not frozen. Objects that come from a cache are read-only by convention;
a writer starts from `copy_of`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from google.protobuf.message import Message as Message

from podyard.api.gen.k8s.io.api.admissionregistration.v1 import generated_pb2 as admissionregistration_v1
from podyard.api.gen.k8s.io.api.apps.v1 import generated_pb2 as apps_v1
from podyard.api.gen.k8s.io.api.authentication.v1 import generated_pb2 as authentication_v1
from podyard.api.gen.k8s.io.api.authorization.v1 import generated_pb2 as authorization_v1
from podyard.api.gen.k8s.io.api.autoscaling.v1 import generated_pb2 as autoscaling_v1
from podyard.api.gen.k8s.io.api.autoscaling.v2 import generated_pb2 as autoscaling_v2
from podyard.api.gen.k8s.io.api.batch.v1 import generated_pb2 as batch_v1
from podyard.api.gen.k8s.io.api.certificates.v1 import generated_pb2 as certificates_v1
from podyard.api.gen.k8s.io.api.coordination.v1 import generated_pb2 as coordination_v1
from podyard.api.gen.k8s.io.api.core.v1 import generated_pb2 as core_v1
from podyard.api.gen.k8s.io.api.discovery.v1 import generated_pb2 as discovery_v1
from podyard.api.gen.k8s.io.api.events.v1 import generated_pb2 as events_v1
from podyard.api.gen.k8s.io.api.flowcontrol.v1 import generated_pb2 as flowcontrol_v1
from podyard.api.gen.k8s.io.api.networking.v1 import generated_pb2 as networking_v1
from podyard.api.gen.k8s.io.api.node.v1 import generated_pb2 as node_v1
from podyard.api.gen.k8s.io.api.policy.v1 import generated_pb2 as policy_v1
from podyard.api.gen.k8s.io.api.rbac.v1 import generated_pb2 as rbac_v1
from podyard.api.gen.k8s.io.api.resource.v1 import generated_pb2 as resource_v1
from podyard.api.gen.k8s.io.api.scheduling.v1 import generated_pb2 as scheduling_v1
from podyard.api.gen.k8s.io.api.storage.v1 import generated_pb2 as storage_v1
from podyard.api.gen.k8s.io.apimachinery.pkg.api.resource import generated_pb2 as resource
from podyard.api.gen.k8s.io.apimachinery.pkg.apis.meta.v1 import generated_pb2 as meta_v1
from podyard.api.gen.k8s.io.apimachinery.pkg.runtime import generated_pb2 as runtime
from podyard.api.gen.k8s.io.apimachinery.pkg.util.intstr import generated_pb2 as intstr
from podyard.api.gen.k8s.io.cri_api.pkg.apis.runtime.v1 import api_pb2 as cri
from podyard.api.gen.podyard.admissionregistration.v1 import service_pb2 as rpc_admissionregistration_v1
from podyard.api.gen.podyard.apps.v1 import service_pb2 as rpc_apps_v1
from podyard.api.gen.podyard.authentication.v1 import service_pb2 as rpc_authentication_v1
from podyard.api.gen.podyard.authorization.v1 import service_pb2 as rpc_authorization_v1
from podyard.api.gen.podyard.autoscaling.v1 import service_pb2 as rpc_autoscaling_v1
from podyard.api.gen.podyard.autoscaling.v2 import service_pb2 as rpc_autoscaling_v2
from podyard.api.gen.podyard.batch.v1 import service_pb2 as rpc_batch_v1
from podyard.api.gen.podyard.certificates.v1 import service_pb2 as rpc_certificates_v1
from podyard.api.gen.podyard.coordination.v1 import service_pb2 as rpc_coordination_v1
from podyard.api.gen.podyard.core.v1 import service_pb2 as rpc_core_v1
from podyard.api.gen.podyard.discovery.v1 import service_pb2 as rpc_discovery_v1
from podyard.api.gen.podyard.events.v1 import service_pb2 as rpc_events_v1
from podyard.api.gen.podyard.flowcontrol.v1 import service_pb2 as rpc_flowcontrol_v1
from podyard.api.gen.podyard.meta.v1 import meta_pb2 as rpc
from podyard.api.gen.podyard.networking.v1 import service_pb2 as rpc_networking_v1
from podyard.api.gen.podyard.node.v1 import service_pb2 as rpc_node_v1
from podyard.api.gen.podyard.policy.v1 import service_pb2 as rpc_policy_v1
from podyard.api.gen.podyard.rbac.v1 import service_pb2 as rpc_rbac_v1
from podyard.api.gen.podyard.resource.v1 import service_pb2 as rpc_resource_v1
from podyard.api.gen.podyard.scheduling.v1 import service_pb2 as rpc_scheduling_v1
from podyard.api.gen.podyard.storage.v1 import service_pb2 as rpc_storage_v1

Binding = core_v1.Binding
ConfigMap = core_v1.ConfigMap
Container = core_v1.Container
ContainerState = core_v1.ContainerState
ContainerStatus = core_v1.ContainerStatus
Endpoints = core_v1.Endpoints
Event = core_v1.Event
Namespace = core_v1.Namespace
Node = core_v1.Node
NodeCondition = core_v1.NodeCondition
ObjectReference = core_v1.ObjectReference
Pod = core_v1.Pod
PodCondition = core_v1.PodCondition
PodSpec = core_v1.PodSpec
PodStatus = core_v1.PodStatus
PodTemplateSpec = core_v1.PodTemplateSpec
Secret = core_v1.Secret
Service = core_v1.Service
ServiceAccount = core_v1.ServiceAccount
Taint = core_v1.Taint
Toleration = core_v1.Toleration
TokenRequest = authentication_v1.TokenRequest
Volume = core_v1.Volume

DeleteOptions = meta_v1.DeleteOptions
LabelSelector = meta_v1.LabelSelector
ListMeta = meta_v1.ListMeta
ListOptions = meta_v1.ListOptions
MicroTime = meta_v1.MicroTime
ObjectMeta = meta_v1.ObjectMeta
OwnerReference = meta_v1.OwnerReference
Status = meta_v1.Status
StatusCause = meta_v1.StatusCause
StatusDetails = meta_v1.StatusDetails
Time = meta_v1.Time

EndpointSlice = discovery_v1.EndpointSlice
EventsV1Event = events_v1.Event
Eviction = policy_v1.Eviction
IntOrString = intstr.IntOrString
Lease = coordination_v1.Lease
PriorityClass = scheduling_v1.PriorityClass
Quantity = resource.Quantity
RawExtension = runtime.RawExtension
TypeMeta = runtime.TypeMeta
Unknown = runtime.Unknown

# Message package -> generated module, for the loops over the resource table.
API_MODULES = {
    module.DESCRIPTOR.package: module
    for module in (
        admissionregistration_v1,
        apps_v1,
        authentication_v1,
        authorization_v1,
        autoscaling_v1,
        autoscaling_v2,
        batch_v1,
        certificates_v1,
        coordination_v1,
        core_v1,
        discovery_v1,
        events_v1,
        flowcontrol_v1,
        meta_v1,
        networking_v1,
        node_v1,
        policy_v1,
        rbac_v1,
        resource_v1,
        scheduling_v1,
        storage_v1,
    )
}
# Service package -> generated module with the typed services.
SERVICE_MODULES = {
    module.DESCRIPTOR.package: module
    for module in (
        rpc,
        rpc_admissionregistration_v1,
        rpc_apps_v1,
        rpc_authentication_v1,
        rpc_authorization_v1,
        rpc_autoscaling_v1,
        rpc_autoscaling_v2,
        rpc_batch_v1,
        rpc_certificates_v1,
        rpc_coordination_v1,
        rpc_core_v1,
        rpc_discovery_v1,
        rpc_events_v1,
        rpc_flowcontrol_v1,
        rpc_networking_v1,
        rpc_node_v1,
        rpc_policy_v1,
        rpc_rbac_v1,
        rpc_resource_v1,
        rpc_scheduling_v1,
        rpc_storage_v1,
    )
}

M = TypeVar("M", bound=Message)


class Key(NamedTuple):
    """Name of one object of a kind; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def copy_of(message: M) -> M:
    """A copy that the caller may change."""
    duplicate = type(message)()
    duplicate.CopyFrom(message)
    return duplicate
