"""Volumes, claims and slices of devices before they are stored.

Counterpart: kubernetes pkg/registry/core/{persistentvolume,persistentvolumeclaim}/strategy.go.
"""

from __future__ import annotations

from typing import Any

from apiserver.rules import metadata
from podyard.api import meta
from podyard.api.storage_defaults import twin_data_sources
from podyard.api.types import core_v1

PENDING = "Pending"


def prepare_volume(volume: core_v1.PersistentVolume) -> None:
    """A new volume waits for its controller."""
    metadata.clear_status(volume)
    volume.status.phase = PENDING


def prepare_claim(claim: core_v1.PersistentVolumeClaim) -> None:
    """A new claim waits for a volume."""
    metadata.clear_status(claim)
    claim.status.phase = PENDING
    twin_data_sources(claim.spec)


def prepare_claim_update(new: core_v1.PersistentVolumeClaim, old: core_v1.PersistentVolumeClaim) -> None:
    """The stored status stays; what a source says twice, it says alike."""
    metadata.keep_status(new, old)
    twin_data_sources(new.spec)


def stamp_phase(new: core_v1.PersistentVolume, old: core_v1.PersistentVolume | None, now_s: float) -> None:
    """When the phase changed last."""
    if old is None or new.status.phase != old.status.phase:
        before = None if old is None else old.status.lastPhaseTransitionTime.seconds
        if old is None or new.status.lastPhaseTransitionTime.seconds == before:
            new.status.lastPhaseTransitionTime.CopyFrom(meta.time_of(now_s))


def stamp_taints(new: Any, old: Any, now_s: float) -> None:
    """When a device's taint was added."""
    for device in new.spec.devices:
        for taint in device.taints:
            if meta.is_zero_time(taint.timeAdded):
                taint.timeAdded.CopyFrom(meta.time_of(now_s))
