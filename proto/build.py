"""Makes the Python messages in podyard/api/gen from the .proto files.

Editable install, wheel and image all run this through the build hook (`hatch_build.py`); by hand
it is `make proto`. protoc writes imports from the root of the proto tree; here the tree lies
inside a package, so they are rewritten. No service stubs are made: handlers and client calls
come from the resource table.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GEN_PACKAGE = "podyard.api.gen"
_IMPORT = re.compile(r"^(from|import) (k8s|podyard)\b", re.MULTILINE)


def build(target: Path | None = None) -> Path:
    """Runs protoc over the whole tree; returns the folder written.

    Raises:
        RuntimeError: protoc reported an error (its own text is on standard error).
    """
    import grpc_tools
    from grpc_tools import protoc

    proto = ROOT / "proto"
    target = target or ROOT / "podyard" / "api" / "gen"
    scratch = target.with_name("gen.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    sources = sorted(str(path.relative_to(proto)) for path in proto.rglob("*.proto"))
    include = Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(
        ["protoc", f"-I{proto}", f"-I{include}", f"--python_out={scratch}", f"--pyi_out={scratch}", *sources]
    )
    if code != 0:
        raise RuntimeError(f"protoc failed with code {code}")
    for path in (*scratch.rglob("*.py"), *scratch.rglob("*.pyi")):
        text = path.read_text(encoding="utf-8")
        path.write_text(_IMPORT.sub(rf"\1 {GEN_PACKAGE}.\2", text), encoding="utf-8")
    for folder in (scratch, *(path for path in scratch.rglob("*") if path.is_dir())):
        (folder / "__init__.py").touch()
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)
    return target


if __name__ == "__main__":
    build()
    sys.exit(0)
