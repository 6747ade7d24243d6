"""Pod statuses on their way to the API server: only differences, only when there are any.

What is compared is the last status that the server is known to have: the pod as seen through the
watch, or what this process wrote since.
"""

from __future__ import annotations

from typing import Any

from podyard.api import codec, errors
from podyard.api.errors import ApiError
from podyard.api.types import Pod, PodStatus
from podyard.base import log
from podyard.client.client import STRATEGIC_PATCH, Client

_LOGGER = log.get_logger("kubelet.status")


def status_patch(old: PodStatus, new: PodStatus) -> dict[str, Any] | None:
    """A strategic merge patch of the status; None when nothing differs.

    Conditions merge by type, so those of other writers stay. Everything else is the kubelet's.
    """
    before, after = codec.to_dict(old), codec.to_dict(new)
    patch: dict[str, Any] = {}
    for name in before.keys() | after.keys():
        if before.get(name) == after.get(name):
            continue
        if name == "conditions":
            known = {entry["type"]: entry for entry in before.get(name, [])}
            patch[name] = [entry for entry in after[name] if known.get(entry["type"]) != entry]
        elif name in ("podIPs", "hostIPs"):
            # These lists merge by address: replace them as a whole.
            patch[name] = [{"$patch": "replace"}, *after.get(name, [])]
        else:
            patch[name] = after.get(name)
    if patch.get("conditions") == []:
        del patch["conditions"]
    return patch or None


class StatusWriter:
    """Writes statuses."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._written: dict[str, Pod] = {}

    async def publish(self, pod: Pod, status: PodStatus) -> None:
        """Brings the server's status of a pod to `status`.

        A failure is no error of the pod: it runs on, and the next report tries again.
        """
        uid = pod.metadata.uid
        known = self._written.get(uid)
        if known is None or int(known.metadata.resourceVersion) < int(pod.metadata.resourceVersion):
            known = pod
        patch = status_patch(known.status, status)
        if patch is None:
            return
        body = {"metadata": {"uid": uid}, "status": patch}
        try:
            self._written[uid] = await self._client.patch(
                Pod,
                pod.metadata.name,
                pod.metadata.namespace,
                body=body,
                patch_type=STRATEGIC_PATCH,
                subresource="status",
            )
        except (errors.NotFound, errors.Conflict):
            self._written.pop(uid, None)  # gone, or another pod has the name now
        except ApiError as error:
            _LOGGER.warning("status not written", pod=pod.metadata.name, error=error.message)

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)
