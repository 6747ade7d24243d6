"""Jobs before they are stored: the selector that finds a job's own pods and nobody else's.

Counterpart: kubernetes pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

from apiserver.rules import workloads
from podyard.api.types import batch_v1
from podyard.api.validation_batch import CONTROLLER_UID, JOB_NAME

# Clients that are older than the prefixes read these.
_OLD_LABELS = {"controller-uid": CONTROLLER_UID, "job-name": JOB_NAME}


def prepare_create(job: batch_v1.Job) -> None:
    """A new job has no status, and selects its pods by its own uid unless the client chose the labels."""
    workloads.prepare_create(job)
    if job.spec.manualSelector:
        return
    labels = job.spec.template.metadata.labels
    own = {CONTROLLER_UID: job.metadata.uid, JOB_NAME: job.metadata.name}
    # Labels of these names that the client set stay, for validation to refuse.
    for name, value in own.items():
        labels.setdefault(name, value)
    for old, name in _OLD_LABELS.items():
        labels.setdefault(old, own[name])
    if not job.metadata.labels:
        # Upstream's defaults see the labels above when they read the stored job.
        job.metadata.labels.update(labels)
    if not job.spec.HasField("selector"):
        job.spec.selector.SetInParent()
    job.spec.selector.matchLabels.setdefault(CONTROLLER_UID, job.metadata.uid)
