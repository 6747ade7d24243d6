"""Environment variables that name the Services a container may use. Pure.

Every container gets those of `default/kubernetes`; with `enableServiceLinks` (the default) also those
of its own namespace's Services. Headless Services have none.

Source: pkg/kubelet/envvars FromServices, kubelet_pods.go getServiceEnvVarMap.
"""

from __future__ import annotations

from collections.abc import Iterable

from podyard.api.types import Pod, Service

_API = ("default", "kubernetes")


def service_env(pod: Pod, services: Iterable[Service]) -> dict[str, str]:
    """The variables of a pod's containers.

    Args:
        services: of all namespaces, ordered by namespace and name.
    """
    links = pod.spec.enableServiceLinks if pod.spec.HasField("enableServiceLinks") else True
    chosen: dict[str, Service] = {}
    for service in services:
        namespace, name = service.metadata.namespace, service.metadata.name
        if service.spec.clusterIP in ("", "None") or not service.spec.ports:
            continue
        # The pod's own namespace wins where it has a Service of that name, too.
        if links and namespace == pod.metadata.namespace:
            chosen[name] = service
        elif (namespace, name) == _API:
            chosen.setdefault(name, service)
    env: dict[str, str] = {}
    for name in sorted(chosen):
        env.update(_variables(chosen[name]))
    return env


def _variables(service: Service) -> dict[str, str]:
    prefix = _upper(service.metadata.name)
    address, ports = service.spec.clusterIP, service.spec.ports
    env = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0].port)}
    for port in ports:
        if port.name:
            env[f"{prefix}_SERVICE_PORT_{_upper(port.name)}"] = str(port.port)
    for number, port in enumerate(ports):
        protocol = port.protocol or "TCP"
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{port.port}"
        if not number:
            env[f"{prefix}_PORT"] = url
        base = f"{prefix}_PORT_{port.port}_{protocol}"
        env[base] = url
        env[f"{base}_PROTO"] = protocol.lower()
        env[f"{base}_PORT"] = str(port.port)
        env[f"{base}_ADDR"] = address
    return env


def _upper(name: str) -> str:
    return name.replace("-", "_").upper()
