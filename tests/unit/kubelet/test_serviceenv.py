"""Variables that name Services."""

from __future__ import annotations

from kubelet.environment import container_env
from kubelet.podbuild import HostFacts
from kubelet.serviceenv import service_env
from podyard.api.types import Pod, Service


def service(name: str, namespace: str = "team", address: str = "10.96.0.7", *ports: dict) -> Service:
    return Service(
        metadata={"name": name, "namespace": namespace},
        spec={"clusterIP": address, "ports": ports or ({"port": 80},)},
    )


API = service("kubernetes", "default", "10.96.0.1", {"name": "https", "port": 443, "protocol": "TCP"})


def pod(namespace: str = "team", **spec) -> Pod:
    return Pod(
        metadata={"name": "web", "namespace": namespace}, spec={"containers": [{"name": "main"}], **spec}
    )


def test_the_api_server_is_named_to_everyone():
    expected = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "KUBERNETES_PORT": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
    }
    assert service_env(pod(), [API]) == expected
    assert service_env(pod(enableServiceLinks=False), [API, service("db")]) == expected


def test_services_of_the_own_namespace_are_named_others_are_not():
    env = service_env(
        pod(), [service("my-db"), service("other", "elsewhere"), service("none", "team", "None")]
    )
    assert {name.partition("_SERVICE")[0] for name in env if "SERVICE" in name} == {"MY_DB"}
    assert env["MY_DB_SERVICE_HOST"] == "10.96.0.7"


def test_many_ports_the_first_is_the_plain_one():
    ports = (
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "dns", "port": 53, "protocol": "TCP"},
    )
    env = service_env(pod(), [service("dns", "team", "10.96.0.9", *ports)])
    assert env["DNS_PORT"] == "udp://10.96.0.9:53"
    assert env["DNS_SERVICE_PORT_DNS_UDP"] == env["DNS_SERVICE_PORT"] == "53"
    assert env["DNS_PORT_53_TCP_PROTO"] == "tcp"


def test_a_service_of_the_own_namespace_hides_the_api_servers_name():
    own = service("kubernetes", "team", "10.96.0.66")
    assert service_env(pod(), [API, own])["KUBERNETES_SERVICE_HOST"] == "10.96.0.66"


async def test_what_the_container_sets_wins_and_references_see_services():
    subject = pod()
    main = subject.spec.containers[0]
    main.env.add(name="KUBERNETES_SERVICE_PORT", value="6443")
    main.env.add(name="URL", value="https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)")
    env = await container_env(
        subject, main, HostFacts("n", "", 0, 0), (), None, services=service_env(subject, [API])
    )
    assert env["URL"] == "https://10.96.0.1:6443"
