"""The image: its build context from the installed package's own files, its base, its build.

Works from a clone (editable install) and from a wheel alike: the Dockerfile and what goes with it are
package data (`podyard/_image`, in a clone the folder `compose/`), the code is what this interpreter
imports. The base image is pulled, or, where it cannot be, bootstrapped from Debian's packages under the
same tag.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from podyard.base import clock, run
from podyard.cluster.engine import Engine, EngineError
from podyard.cluster.enginehost import debian_architecture
from podyard.cluster.errors import ClusterError, PreflightError
from podyard.cluster.progress import Progress
from podyard.cluster.spec import BASE_IMAGE
from podyard.cluster.version import VERSION

PACKAGES = ("podyard", "apiserver", "scheduler", "controller_manager", "kubelet", "proxy")
LABEL_CONTEXT = "podyard.context"

_CODE = "root/opt/podyard/code"
# Where Debian-like and Red-Hat-like hosts keep the certificates that their administrator added.
_HOST_CERTIFICATES = (Path("/usr/local/share/ca-certificates"), Path("/etc/pki/ca-trust/source/anchors"))
_CERTIFICATE_SUFFIXES = {".crt", ".pem", ".cer"}
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_BOOTSTRAP_TOOL = "mmdebstrap"
_BOOTSTRAP_SUITE = "trixie"
_BOOTSTRAP_DEADLINE_S = 900.0
_PULL_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class ContextFile:
    """One file of the build context. `executable` is all of the mode that matters."""

    path: str
    content: bytes = field(repr=False)
    executable: bool = False


def image_files() -> Path:
    """The folder with the Dockerfile and what goes with it.

    Raises:
        ClusterError: the installation lacks it.
    """
    package = _package_directory("podyard")
    for folder in (package / "_image", package.parent / "compose"):
        if (folder / "Dockerfile").is_file():
            return folder
    raise ClusterError("this installation of podyard lacks the image's files", hint="install it again")


def context_files() -> list[ContextFile]:
    """Everything that the build needs, sorted by path."""
    files = {file.path: file for file in _static_files(image_files())}
    for package in PACKAGES:
        for path, content in _code_files(package):
            files[path] = ContextFile(path, content)
    # The code is laid over, not installed; this lets it know its version all the same.
    metadata = f"Metadata-Version: 2.1\nName: podyard\nVersion: {VERSION}\n".encode()
    information = f"{_CODE}/podyard-{VERSION}.dist-info/METADATA"
    files[information] = ContextFile(information, metadata)
    for folder in _HOST_CERTIFICATES:
        for certificate in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if certificate.suffix in _CERTIFICATE_SUFFIXES and certificate.is_file():
                # update-ca-certificates takes *.crt only.
                path = f"certs/{certificate.stem}.crt"
                files[path] = ContextFile(path, certificate.read_bytes())
    return [files[path] for path in sorted(files)]


def context_digest(files: list[ContextFile]) -> str:
    """What tells one context from another; stands on the image as a label."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.executable}\0{len(file.content)}\0".encode())
        digest.update(file.content)
    return digest.hexdigest()[:16]


def write_context(files: list[ContextFile], target: IO[bytes]) -> None:
    """The context as a tar, the same for the same files."""
    folders: set[str] = set()
    with tarfile.open(fileobj=target, mode="w") as tar:
        # The Dockerfile copies this folder whether or not the host has certificates of its own.
        _add_folder(tar, folders, "certs")
        for file in files:
            _add_folder(tar, folders, os.path.dirname(file.path))
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(file.content), 0o755 if file.executable else 0o644
            tar.addfile(member, io.BytesIO(file.content))


def _add_folder(tar: tarfile.TarFile, done: set[str], path: str) -> None:
    if not path or path in done:
        return
    _add_folder(tar, done, os.path.dirname(path))
    done.add(path)
    member = tarfile.TarInfo(path)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(member)


def _static_files(folder: Path) -> Iterator[ContextFile]:
    yield ContextFile("Dockerfile", (folder / "Dockerfile").read_bytes())
    yield ContextFile("build/requirements.lock", (folder / "requirements.lock").read_bytes())
    for part in ("build", "root"):
        for file in sorted((folder / part).rglob("*")):
            if file.is_file():
                content = file.read_bytes()
                # A wheel does not keep modes, so a program is known by how it begins.
                yield ContextFile(
                    file.relative_to(folder).as_posix(), content, executable=content.startswith(b"#!")
                )


def _code_files(package: str) -> Iterator[tuple[str, bytes]]:
    folder = _package_directory(package)
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if file.is_file() and "__pycache__" not in relative.parts and relative.parts[0] != "_image":
            yield f"{_CODE}/{package}/{relative.as_posix()}", file.read_bytes()


def _package_directory(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ClusterError(
            f"this installation of podyard lacks the package {package}", hint="install it again"
        )
    return Path(next(iter(found.submodule_search_locations)))


async def ensure_image(engine: Engine, reference: str, progress: Progress, *, rebuild: bool) -> str:
    """The image's id; builds it when it is missing, or when `rebuild` is set and its context changed.

    Without `rebuild`, one line says so where the context changed.

    Raises:
        PreflightError: the base image can neither be pulled nor bootstrapped here.
        EngineError: the build failed; the text has the end of its output.
    """
    present = await engine.image_id(reference)
    files = await asyncio.to_thread(context_files)
    digest = context_digest(files)
    found = (await engine.image_labels(reference)).get(LABEL_CONTEXT) if present else None
    if present and found == digest:
        return present
    if present and not rebuild:
        # Without the label nobody knows what it was built from.
        if found is not None:
            progress.note(
                f"the image {reference} was built from other code than this; `up --build` makes it anew"
            )
        return present
    await ensure_base(engine, progress)
    return await _build(engine, reference, files, digest, progress)


async def remove_superseded(engine: Engine) -> None:
    """Images of ours that lost their tag to a newer one; those that a container still uses stay."""
    for image_id in await engine.untagged_images(LABEL_CONTEXT):
        await engine.remove_image(image_id)


async def _build(
    engine: Engine, reference: str, files: list[ContextFile], digest: str, progress: Progress
) -> str:
    # pip and apt in the build leave the machine the way the host does.
    arguments = {name: os.environ[name] for name in _PROXY_VARIABLES if name in os.environ}
    with tempfile.TemporaryFile(prefix="podyard-context-") as context:
        await asyncio.to_thread(write_context, files, context)
        context.seek(0)
        with progress.step(f"building the image {reference}"):
            return await engine.build(
                context,
                reference,
                labels={LABEL_CONTEXT: digest},
                arguments=arguments,
                on_line=progress.detail,
            )


async def ensure_base(engine: Engine, progress: Progress) -> None:
    """The base image: there already, pulled, or bootstrapped.

    Raises:
        PreflightError: none of these; the hint names the tool to install.
    """
    if await engine.image_id(BASE_IMAGE):
        return
    progress.note(f"the base image {BASE_IMAGE} is not here yet; trying to pull it")
    try:
        async with clock.real_timeout(_PULL_DEADLINE_S):
            await engine.pull(BASE_IMAGE)
        return
    except (EngineError, TimeoutError) as error:
        progress.note(f"{BASE_IMAGE} cannot be pulled ({error or 'no answer'}); bootstrapping it instead")
    if shutil.which(_BOOTSTRAP_TOOL) is None:
        raise PreflightError(
            f"the base image {BASE_IMAGE} cannot be pulled, and {_BOOTSTRAP_TOOL} to make it is missing",
            hint=f"apt-get install {_BOOTSTRAP_TOOL}",
        )
    with tempfile.TemporaryDirectory(prefix="podyard-base-") as folder:
        archive = Path(folder) / "base.tar"
        with progress.step(f"bootstrapping {BASE_IMAGE} from Debian's packages"):
            machine = (await engine.info()).architecture
            await _bootstrap(bootstrap_command(machine, archive), progress)
            await engine.import_image(archive, BASE_IMAGE)


def bootstrap_command(machine: str, archive: Path) -> tuple[str, ...]:
    """What makes a root file system for the engine's machine, which need not be this one's.

    Args:
        machine: the engine's word for its architecture.
    """
    return (
        _BOOTSTRAP_TOOL,
        "--variant=minbase",
        "--include=ca-certificates",
        f"--architectures={debian_architecture(machine)}",
        _BOOTSTRAP_SUITE,
        str(archive),
    )


async def _bootstrap(command: tuple[str, ...], progress: Progress) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    tail: list[str] = []

    async def read() -> None:
        assert process.stderr is not None
        async for raw in process.stderr:
            line = raw.decode(errors="replace").rstrip()
            tail[:] = [*tail[-20:], line]
            progress.detail(line)

    try:
        async with clock.real_timeout(_BOOTSTRAP_DEADLINE_S), run.Background() as background:
            reader = background.start(read())
            code = await process.wait()
            await reader
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0:
        raise ClusterError(
            f"{_BOOTSTRAP_TOOL} failed:\n" + "\n".join(tail),
            hint=f"{BASE_IMAGE} loaded some other way (docker load) will do as well; "
            "for an engine of another architecture than this machine's, qemu-user-static must be here",
        )
