"""A client of plain grpcio with stubs that protoc makes from `proto/`, where podyard is not installed."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from pathlib import Path

import pytest
from grpc_tools import protoc

from tests.component.apiserver.served import Served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]
REPOSITORY = Path(__file__).resolve().parents[3]
PROTO = REPOSITORY / "proto"
PROGRAM = Path(__file__).with_name("plain_client.py")

# `-S` leaves out what .pth files add, so the packages are there and our own, editable, is not.
RUN = """
import runpy, sys
sys.path[:0] = sys.argv[1].split(":")
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("podyard/**/*.proto"))
    files += sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("k8s.io/api*/**/*.proto"))
    made = protoc.main(
        ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    )
    assert made == 0
    return folder


async def test_plain_client(served: Served, stubs: Path, tmp_path: Path, unique: str) -> None:
    paths = [str(stubs), sysconfig.get_path("purelib")]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        RUN,
        ":".join(paths),
        str(PROGRAM),
        f"localhost:{served.grpc_port}",
        str(served.certificates.folder),
        unique,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert output.decode().splitlines()[-1:] == ["done"], output.decode()
