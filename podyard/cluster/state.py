"""What the host keeps of a cluster: `cluster.yaml`, `pki/`, `kubeconfig`, in a folder of mode 0700.

Every file is replaced as a whole, so that an interrupted `up` leaves nothing half written; what is missing
or broken is made anew by the next. The engine's labels, not this folder, say what exists.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from podyard.base import pki
from podyard.base.pki import KeyPair, SigningKey
from podyard.cluster.errors import ClusterError
from podyard.cluster.identities import ADMIN, COMMON_NAMES, Authority, Material, entries
from podyard.cluster.settings import Settings
from podyard.cluster.spec import (
    ClusterSpec,
    HostPorts,
    Placement,
    Role,
)


def data_directory() -> Path:
    """The folder that holds every cluster's own."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The specification of XDG says that a relative path counts as unset.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "podyard"


class Busy(ClusterError):
    """Another `podyard` process holds the lock."""


def engine_locks() -> Path:
    """Where locks are of what the engine has once for all clusters, wherever their states are kept."""
    return Path(tempfile.gettempdir()) / f"podyard-{os.getuid()}"


@contextmanager
def locked(what: str, *, folder: Path | None = None) -> Iterator[None]:
    """Holds a lock of this user's `podyard` processes; the kernel frees it when the holder dies.

    Args:
        folder: where the lock is; None beside the state that it guards.

    Raises:
        Busy: another process holds it.
    """
    locks = folder or data_directory() / ".locks"
    locks.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(locks / what, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy(
                f"another podyard command is changing the cluster {what!r}", hint="wait for its end"
            ) from error
        yield


@dataclass(frozen=True, slots=True)
class Home:
    """The engine that a cluster lives on.

    Attributes:
        id: tells it from every other.
        host: where it was reached, for people to recognise it by.
    """

    id: str
    host: str


class StateDirectory:
    """One cluster's folder."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.path = data_directory() / cluster
        self.kubeconfig = self.path / "kubeconfig"
        # Which files of the user's the cluster was merged into, a line each.
        self.merged_into = self.path / "merged-into"
        self._placement = self.path / "cluster.yaml"
        self._cuts = self.path / "cuts"
        self._pki = self.path / "pki"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other `podyard` processes from changing this cluster at the same time.

        Raises:
            Busy: one does.
        """
        with locked(self.cluster):
            yield

    def placement(self) -> Placement | None:
        """What was chosen for this cluster; None when nothing was, or it cannot be read any more."""
        try:
            content = yaml.safe_load(self._placement.read_text(encoding="utf-8"))
            ports = {name: HostPorts(**row) for name, row in content["ports"].items()}
            return Placement(str(content["subnet"]), int(content["mtu"]), ports)
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
            return None

    def nodes(self) -> int | None:
        """How many nodes the last `up` was to reach; None when that is not known."""
        try:
            return int(yaml.safe_load(self._placement.read_text(encoding="utf-8"))["nodes"])
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
            return None

    def settings(self) -> Settings:
        """What `up` was told; the defaults where it was told nothing.

        Raises:
            ClusterError: something is written there that cannot be read.
        """
        return self.settings_told() or Settings()

    def settings_told(self) -> Settings | None:
        """As `settings`, and None where nothing was told."""
        content = self._content()
        if "settings" not in content:
            return None
        if not isinstance(content["settings"], dict):
            raise self._unreadable("its settings are no mapping")
        try:
            return Settings.from_plain(content["settings"])
        except (TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(error) from error

    def engine(self) -> Home | None:
        """The engine that the cluster lives on; None where it was not written down."""
        try:
            kept = self._content().get("engine")
        except ClusterError:
            return None
        if not isinstance(kept, dict) or not kept.get("id"):
            return None
        return Home(str(kept["id"]), str(kept.get("host", "")))

    def _content(self) -> dict[str, Any]:
        """All of `cluster.yaml`; nothing where there is no such file.

        Raises:
            ClusterError: it cannot be read.
        """
        try:
            content = yaml.safe_load(self._placement.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise self._unreadable(error) from error
        if not isinstance(content, dict):
            raise self._unreadable("it holds no mapping")
        return content

    def _unreadable(self, why: object) -> ClusterError:
        # Defaults would take away what was told, the number of etcd members too.
        return ClusterError(
            f"{self._placement} cannot be read: {why}",
            hint="mend it, or remove that file and tell `podyard up` anew what the cluster is",
        )

    def cut(self, container: str) -> str:
        """When a container that was cut off and not healed had started, in the engine's words; else empty."""
        try:
            return (self._cuts / container).read_text(encoding="utf-8")
        except OSError:
            return ""

    def save_cut(self, container: str, started_at: str) -> None:
        """Records that a container is cut off. A file each, so that verbs on several cannot lose one."""
        self._write(self._cuts / container, started_at.encode())

    def forget_cut(self, container: str) -> None:
        """Records that it is not; idempotent."""
        (self._cuts / container).unlink(missing_ok=True)

    def save_nodes(self, count: int) -> None:
        """Records how many nodes there are meant to be, and forgets what was said of others."""
        content = self._content()
        content["nodes"] = count
        content["settings"] = self.settings().fitting(count).plain()
        self._write(self._placement, yaml.safe_dump(content, sort_keys=False).encode())

    def save_placement(self, spec: ClusterSpec, placement: Placement, home: Home | None = None) -> None:
        """Writes `cluster.yaml`."""
        content = {
            "name": spec.name,
            **({} if home is None else {"engine": asdict(home)}),
            "nodes": spec.nodes,
            "image": spec.image,
            "subnet": placement.subnet,
            "mtu": placement.mtu,
            "settings": Settings.of(spec).plain(),
            "ports": {name: asdict(ports) for name, ports in placement.ports.items()},
        }
        self._write(self._placement, yaml.safe_dump(content, sort_keys=False).encode())

    def material(self, spec: ClusterSpec, placement: Placement, *, now_s: float) -> Material:
        """All certificates and keys: what is there and good is kept, the rest made; `now_s` is real time."""
        authorities = {authority: self._authority(authority, now_s) for authority in Authority}
        pairs = {}
        for name, entry in entries(spec, placement).items():
            authority = authorities[entry.authority]
            pair = self._read_pair(name)
            if pair is None or not pki.serves(pair, authority, entry.identity, now_s=now_s):
                pair = pki.issue(authority, entry.identity, now_s=now_s)
                self._write_pair(name, pair)
            pairs[name] = pair
        return Material(authorities, pairs, self._service_account())

    def admin(self) -> tuple[KeyPair, bytes] | None:
        """The administrator's pair and the cluster's CA certificate; None when there are none."""
        pair, authority = self._read_pair(ADMIN), self._read_pair(Authority.CLUSTER.value)
        return None if pair is None or authority is None else (pair, authority.certificate)

    def admin_files(self) -> tuple[Path, Path, Path]:
        """Where the CA certificate, the administrator's certificate and key stand."""
        return (
            self._pki / f"{Authority.CLUSTER.value}.crt",
            self._pki / f"{ADMIN}.crt",
            self._pki / f"{ADMIN}.key",
        )

    def write_kubeconfig(self, spec: ClusterSpec, placement: Placement, material: Material) -> None:
        """Writes the administrator's kubeconfig, certificates embedded."""
        content = kubeconfig(spec, placement, material)
        self._write(self.kubeconfig, yaml.safe_dump(content, sort_keys=False).encode())

    def remove(self) -> None:
        """Away with the folder; idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _authority(self, authority: Authority, now_s: float) -> KeyPair:
        pair = self._read_pair(authority.value)
        if pair is None:
            pair = pki.new_authority(COMMON_NAMES[authority], now_s=now_s)
            self._write_pair(authority.value, pair)
        return pair

    def _service_account(self) -> SigningKey:
        private, public = self._pki / "service-account.key", self._pki / "service-account.pub"
        try:
            return SigningKey(private.read_bytes(), public.read_bytes())
        except OSError:
            key = pki.new_signing_key()
            self._write(private, key.private)
            self._write(public, key.public)
            return key

    def _read_pair(self, name: str) -> KeyPair | None:
        try:
            return KeyPair((self._pki / f"{name}.crt").read_bytes(), (self._pki / f"{name}.key").read_bytes())
        except OSError:
            return None

    def _write_pair(self, name: str, pair: KeyPair) -> None:
        # The certificate last: without it the pair does not count, so a torn pair is made anew.
        self._write(self._pki / f"{name}.key", pair.key)
        self._write(self._pki / f"{name}.crt", pair.certificate)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(self.path, 0o700)
        partial = path.with_name(path.name + ".new")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(partial, path)


def kubeconfig(spec: ClusterSpec, placement: Placement, material: Material) -> dict[str, Any]:
    """The administrator's kubeconfig as plain data; cluster, user and context are `podyard-NAME`."""
    name = context_name(spec.name)
    first = spec.names(Role.APISERVER)[0]
    admin = material.pairs[ADMIN]

    def embedded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    cluster = {
        "server": placement.ports[first].rest_url,
        "certificate-authority-data": embedded(material.authorities[Authority.CLUSTER].certificate),
    }
    user = {
        "client-certificate-data": embedded(admin.certificate),
        "client-key-data": embedded(admin.key),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def context_name(cluster: str) -> str:
    """The name of a cluster's entries in a kubeconfig."""
    return f"podyard-{cluster}"
