"""What a service account brings to its pods: its name, its pull secrets, a token for the API server.

Source: kubernetes plugin/pkg/admission/serviceaccount.
"""

from __future__ import annotations

from typing import Any

from podyard.api.types import PodSpec, ServiceAccount, Volume

DEFAULT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
CA_CONFIG_MAP = "kube-root-ca.crt"
# Tokens asked for with just this life are those that the API server lets live on for old clients.
EXPIRATION_S = 3607
_MODE = 0o644


def use_account(spec: PodSpec, account: ServiceAccount, name_suffix: str) -> None:
    """Makes a new pod run as an account.

    Args:
        spec: changed.
        name_suffix: what makes the volume's name unlike others.
    """
    spec.serviceAccountName = spec.serviceAccount = account.metadata.name
    if automounts(spec, account):
        _mount_token(spec, VOLUME_PREFIX + name_suffix)
    if not spec.imagePullSecrets:
        spec.imagePullSecrets.extend(account.imagePullSecrets)


def automounts(spec: PodSpec, account: ServiceAccount) -> bool:
    """Whether the pod gets a token: it decides, else its account, else yes."""
    for decides in (spec, account):
        if decides.HasField("automountServiceAccountToken"):
            return bool(decides.automountServiceAccountToken)
    return True


def _mount_token(spec: PodSpec, new_name: str) -> None:
    present = next((v.name for v in spec.volumes if v.name.startswith(VOLUME_PREFIX)), "")
    name, needed = present or new_name, False
    containers: list[Any] = [*spec.initContainers, *spec.containers]
    for container in containers:
        # What a user mounts there stays.
        if not any(mount.mountPath == MOUNT_PATH for mount in container.volumeMounts):
            container.volumeMounts.add(name=name, readOnly=True, mountPath=MOUNT_PATH)
            needed = True
    if needed and not present:
        spec.volumes.append(token_volume(name))


def token_volume(name: str) -> Volume:
    """A token, the cluster's CA and the namespace, as the in-cluster configuration of clients wants them."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": EXPIRATION_S}},
        {
            "configMap": {
                "localObjectReference": {"name": CA_CONFIG_MAP},
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ]
    source = {"projected": {"sources": sources, "defaultMode": _MODE}}
    return Volume(name=name, volumeSource=source)
