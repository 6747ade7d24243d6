"""The volumes of a pod on the node's disk.

Files of ConfigMaps, Secrets and projections are written as upstream's atomic writer does: a new
folder with all of them, then one rename of the link `..data`, so that a reader sees the old or the
new state and never half of each. Secrets and memory-backed volumes live on tmpfs.

Disk and mounts block, so the work is done in threads; one thread at a time for each pod.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kubelet import mounts, projections
from kubelet.podbuild import HostFacts
from kubelet.projections import File, Lookup, SourceError, Sources
from kubelet.tokens import Tokens
from podyard.api import quantity
from podyard.api.types import Pod, Volume
from podyard.base import ids

__all__ = ["File", "Lookup", "NoVolumes", "PodVolumes", "VolumeError", "Volumes", "write_atomically"]

_SUB_PATH_MODE = 0o750
# Kinds of volumes that have files -> the name of their plugin on disk.
_PLUGINS = {
    "configMap": "configmap",
    "secret": "secret",
    "downwardAPI": "downward-api",
    "projected": "projected",
}
# What write_atomically makes beside the files: folders of one state each.
_STATE = re.compile(r"\.\.[0-9a-f]{12}")


class VolumeError(Exception):
    """A volume can't be set up; the text goes into a FailedMount event."""


class Volumes(Protocol):
    """What the kubelet asks; `PodVolumes` on disk, `NoVolumes` where containers are hollow."""

    def known_pods(self) -> list[str]: ...

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]: ...

    async def sub_path(self, uid: str, volume_path: str, sub_path: str) -> str: ...

    async def hosts_file(self, uid: str, text: Callable[[str], str]) -> str: ...

    async def tear_down(self, uid: str) -> None: ...


class NoVolumes:
    """Volumes of pods whose containers open no files."""

    def known_pods(self) -> list[str]:
        return []

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]:
        return {volume.name: f"/hollow/{volume.name}" for volume in pod.spec.volumes}

    async def sub_path(self, uid: str, volume_path: str, sub_path: str) -> str:
        return f"{volume_path}/{sub_path}"

    async def hosts_file(self, uid: str, text: Callable[[str], str]) -> str:
        return "/hollow/etc-hosts"

    async def tear_down(self, uid: str) -> None:
        pass


class PodVolumes:
    """Sets up and tears down.

    Args:
        root: usually /var/lib/kubelet.
        mount_tmpfs: (directory, limit in bytes or 0) -> whether it was mounted now.
        tokens: of service accounts; None where no pod gets any.
        host: the node, for downward references.
    """

    def __init__(
        self,
        root: Path,
        mount_tmpfs: Callable[[Path, int], bool] | None = None,
        *,
        tokens: Tokens | None = None,
        host: HostFacts = HostFacts("", "", 0, 0),
    ) -> None:
        self._tokens = tokens
        self._host = host
        self._pods = root / "pods"
        self._mount_tmpfs = mount_tmpfs or mounts.mount_tmpfs
        self._locks: dict[str, asyncio.Lock] = {}

    def pod_directory(self, uid: str) -> Path:
        return self._pods / uid

    def known_pods(self) -> list[str]:
        """Uids of pods that have something on disk."""
        try:
            return sorted(os.listdir(self._pods))
        except FileNotFoundError:
            return []

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]:
        """Makes or refreshes all volumes of a pod; answers volume name -> path on the node.

        Raises:
            VolumeError: something is missing, can't be read or is not supported.

        Cancellation: what a thread has begun is finished first.
        """
        works = [(volume.name, await self._prepare(pod, volume, lookup)) for volume in pod.spec.volumes]
        if not works:
            return {}
        paths: dict[str, str] = await self._in_thread(pod.metadata.uid, _do_all, works)
        return paths

    async def _in_thread(self, uid: str, work: Callable[..., Any], *arguments: Any) -> Any:
        lock = self._locks.setdefault(uid, asyncio.Lock())
        async with lock:
            job = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                # A thread can't be stopped: nobody else may touch the pod's folder before its end.
                await asyncio.wait({job})
                raise

    async def _prepare(self, pod: Pod, volume: Volume, lookup: Lookup) -> Callable[[], Path]:
        """Reads what the volume needs from the API; answers the work that is left for a thread."""
        source = volume.volumeSource
        group = pod.spec.securityContext.fsGroup if pod.spec.securityContext.HasField("fsGroup") else None
        if source.HasField("emptyDir"):
            directory = self._directory(pod, "empty-dir", volume.name)
            return functools.partial(self._empty_dir, directory, source.emptyDir, group)
        if source.HasField("hostPath"):
            return functools.partial(_host_path, source.hostPath, volume.name)
        try:
            files = await projections.files_of(pod, volume, Sources(lookup, self._tokens, self._host))
        except SourceError as error:
            raise VolumeError(f"{_failed(volume.name)}{error}") from None
        for field, plugin in _PLUGINS.items():
            if files is not None and source.HasField(field):
                directory = self._directory(pod, plugin, volume.name)
                # Secrets must not outlive the machine's power, nor tokens, which are in projections.
                return functools.partial(self._write, directory, files, group, memory=field != "configMap")
        kind = next((field.name for field, _ in source.ListFields()), "none")
        raise VolumeError(_failed(volume.name) + f"volumes of type {kind} are not supported")

    def _directory(self, pod: Pod, plugin: str, name: str) -> Path:
        return self.pod_directory(pod.metadata.uid) / "volumes" / f"kubernetes.io~{plugin}" / name

    def _empty_dir(self, directory: Path, empty: Any, group: int | None) -> Path:
        fresh = not directory.is_dir()
        directory.mkdir(parents=True, exist_ok=True)
        if empty.medium == "Memory":
            limit = quantity.of(empty.sizeLimit).value if empty.HasField("sizeLimit") else 0
            fresh = self._mount_tmpfs(directory, limit)
        # Only at its birth: later its mode is the containers' own affair.
        if fresh:
            _own(directory, group, 0o777)
        return directory

    def _write(self, directory: Path, files: Mapping[str, File], group: int | None, *, memory: bool) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        if memory:
            self._mount_tmpfs(directory, 0)
        write_atomically(directory, files, group)
        return directory

    async def sub_path(self, uid: str, volume_path: str, sub_path: str) -> str:
        """The path on the node of a volume's part, made if it is missing.

        Raises:
            VolumeError: it leads out of the volume.
        """
        path: str = await self._in_thread(uid, _sub_path, volume_path, sub_path)
        return path

    async def hosts_file(self, uid: str, text: Callable[[str], str]) -> str:
        """Writes a pod's /etc/hosts; answers where it is.

        Args:
            text: from the node's own file to the pod's.
        """
        path = self.pod_directory(uid) / "etc-hosts"
        await self._in_thread(uid, _write_hosts, path, text)
        return str(path)

    async def tear_down(self, uid: str) -> None:
        """Unmounts and removes all that a pod has on disk. Nothing there is fine."""
        if self._tokens is not None:
            self._tokens.forget(uid)
        directory = self.pod_directory(uid)
        await self._in_thread(uid, _remove, directory)
        lock = self._locks.get(uid)
        if lock is not None and not lock.locked():
            del self._locks[uid]


def _do_all(works: list[tuple[str, Callable[[], Path]]]) -> dict[str, str]:
    paths = {}
    for name, work in works:
        try:
            paths[name] = str(work())
        except OSError as error:
            raise VolumeError(f"{_failed(name)}{error}") from None
    return paths


def _failed(volume: str) -> str:
    return f'MountVolume.SetUp failed for volume "{volume}" : '


def _remove(directory: Path) -> None:
    if not directory.exists():
        return
    for mount in reversed(mounts.below(directory)):
        try:
            mounts.detach(mount)
        except OSError:
            return  # what is mounted must not be emptied: the next look at the leftovers tries again
    shutil.rmtree(directory, ignore_errors=True)


def _write_hosts(path: Path, text: Callable[[str], str]) -> None:
    wanted = text(Path("/etc/hosts").read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    # In place: containers that run have this very file mounted.
    if not path.exists() or path.read_text(encoding="utf-8") != wanted:
        path.write_text(wanted, encoding="utf-8")
        path.chmod(projections.DEFAULT_MODE)


def _sub_path(volume_path: str, sub_path: str) -> str:
    root = os.path.realpath(volume_path)
    wanted = os.path.realpath(os.path.join(root, sub_path))
    # A container may have put a link there that leads anywhere on the node.
    if wanted != root and not wanted.startswith(f"{root}/"):
        raise VolumeError(f'failed to prepare subPath "{sub_path}": it leads out of its volume')
    if not os.path.lexists(wanted):
        os.makedirs(wanted, mode=_SUB_PATH_MODE, exist_ok=True)
    return wanted


def write_atomically(directory: Path, files: Mapping[str, File], group: int | None = None) -> bool:
    """Makes `directory` hold just these files; answers whether anything changed.

    A kill at any line leaves the old or the new state, and the next call completes it.
    """
    link = directory / "..data"
    changed = not (link.is_symlink() and _same(link, files))
    if changed:
        fresh = directory / f"..{ids.hex_id(12)}"
        fresh.mkdir(mode=0o755)
        for name, file in files.items():
            _write_file(fresh / name, file, group)
        swap = directory / "..data_tmp"
        swap.unlink(missing_ok=True)
        swap.symlink_to(fresh.name)
        swap.rename(link)
    _show(directory, {name.partition("/")[0] for name in files})
    current = os.readlink(link)
    for entry in directory.iterdir():
        if _STATE.fullmatch(entry.name) and entry.name != current:
            shutil.rmtree(entry, ignore_errors=True)
    return changed


def _write_file(target: Path, file: File, group: int | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(file.data)
    target.chmod(file.mode)
    if file.user is not None:
        os.chown(target, file.user, -1)
    if group is not None:
        os.chown(target, -1, group)
        target.chmod(file.mode | 0o440)


def _show(directory: Path, tops: set[str]) -> None:
    """Links for what users see; those of files that are gone are removed."""
    for top in tops:
        visible = directory / top
        if not visible.is_symlink():
            visible.symlink_to(f"..data/{top}")
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()


def _same(link: Path, files: Mapping[str, File]) -> bool:
    present = {str(path.relative_to(link)) for path in link.rglob("*") if path.is_file()}
    if present != set(files):
        return False
    return all((link / name).read_bytes() == file.data for name, file in files.items())


# hostPath type -> (what it must be, how upstream names that).
_HOST_PATH_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "FileOrCreate": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}


def _host_path(source: Any, volume: str) -> Path:
    path = Path(source.path)
    if source.type == "DirectoryOrCreate" and not path.exists():
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif source.type == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644, exist_ok=True)
    check = _HOST_PATH_CHECKS.get(source.type)
    if check is not None:
        is_right, name = check
        if not path.exists() or not is_right(path.stat().st_mode):
            raise VolumeError(f"{_failed(volume)}hostPath type check failed: {path} is not a {name}")
    return path


def _own(directory: Path, group: int | None, mode: int) -> None:
    directory.chmod(mode)
    if group is not None:
        os.chown(directory, -1, group)
        # Set-group-id: what containers make in it belongs to the group, too.
        directory.chmod(stat.S_ISGID | mode | 0o770)
