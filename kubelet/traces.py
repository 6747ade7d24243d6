"""What a pod leaves on its node besides volumes: logs, and cgroups that the runtime made for it."""

from __future__ import annotations

import shutil
from pathlib import Path

from kubelet.cgroups import pod_cgroup
from kubelet.podbuild import LOG_ROOT, log_directory
from kubelet.runtime.base import ObservedPod
from podyard.api.types import Pod

_SUBTREES = ("", "/burstable", "/besteffort")


class Traces:
    """Removes traces of pods that are gone.

    Args:
        log_root: /var/log/pods.
        cgroup_root: where the hierarchies are mounted.
    """

    def __init__(self, log_root: Path = Path(LOG_ROOT), cgroup_root: Path = Path("/sys/fs/cgroup")) -> None:
        self._log_root = log_root
        self._cgroup_root = cgroup_root

    def known_pods(self) -> list[str]:
        """Uids of pods that have left something: a kubelet may have been killed before it removed that."""
        uids = {entry.name.rpartition("_")[2] for entry in _entries(self._log_root)}
        for parent in (self._cgroup_root, *_entries(self._cgroup_root)):
            for subtree in _SUBTREES:
                names = [entry.name for entry in _entries(parent / f"kubepods{subtree}")]
                uids.update(name.removeprefix("pod") for name in names if name.startswith("pod"))
        return sorted(uids)

    def remove(self, observed: ObservedPod, pod: Pod | None) -> None:
        """Removes all of one pod.

        Args:
            pod: its object; None for a leftover, of which only the uid is known.
        """
        if pod is not None:
            shutil.rmtree(self._log_root / Path(log_directory(pod)).name, ignore_errors=True)
            remove_cgroup(self._cgroup_root, pod_cgroup(pod))
            return
        for entry in self._log_root.glob(f"*_{observed.uid}"):
            shutil.rmtree(entry, ignore_errors=True)
        for subtree in _SUBTREES:
            remove_cgroup(self._cgroup_root, f"/kubepods{subtree}/pod{observed.uid}")


def _entries(directory: Path) -> list[Path]:
    """The folders in a folder; none where there is none."""
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def remove_cgroup(root: Path, path: str) -> None:
    """Removes a pod's own cgroup in every hierarchy: the runtime removes only its containers'."""
    own = path.strip("/")
    for parent in (root, *(entry for entry in root.glob("*") if entry.is_dir())):
        directory = parent / own
        if not directory.is_dir():
            continue
        for child in sorted(directory.rglob("*"), key=lambda item: -len(item.parts)):
            if child.is_dir():
                _rmdir(child)
        _rmdir(directory)


def _rmdir(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass  # a process lingers: it is found again when its pod's worker looks once more
