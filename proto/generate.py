"""Writes the .proto files from the fact tables; the results are checked in.

Messages keep upstream's package names, message names, field names and numbers (tables
`podyard/api/tables/proto_fields.tsv` and `proto/tables/cri_*.tsv`), so the bytes are upstream's
bytes. The service definitions come from `podyard/api/tables/served.tsv`: one typed service for
each resource that the API server serves.

Run `make proto-files` after a table changes; `tests/unit/api/test_proto_files.py` compares.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROTO = Path(__file__).resolve().parent
API_TABLES = PROTO.parent / "podyard" / "api" / "tables"
CRI_TABLES = PROTO / "tables"

HEADER = "// Written by proto/generate.py from the tables; do not edit.\n"
SCALARS = frozenset({"string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double", "float"})
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
RUNTIME = "k8s.io.apimachinery.pkg.runtime"
CRI_FILE = "k8s.io/cri-api/pkg/apis/runtime/v1/api.proto"

Row = dict[str, str]


def read_table(path: Path) -> list[Row]:
    """Rows of a tab-separated table with one header line."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def file_of(package: str) -> str:
    """Path of the file that holds a package, as upstream lays them out."""
    head, rest = package.removeprefix("k8s.io."), "k8s.io"
    return f"{rest}/{head.replace('.', '/').replace('_', '-')}/generated.proto"


def package_of(full_name: str) -> str:
    return full_name.rpartition(".")[0]


def _type_name(type_name: str) -> str:
    return type_name if type_name in SCALARS else f".{type_name}"


def _field_line(row: Row) -> str:
    name, number, kind = row["field_name"], row["field_number"], row["type"]
    if row["label"] == "map":
        key, value = kind.split(",")
        return f"  map<{key}, {_type_name(value)}> {name} = {number};"
    return f"  {row['label']} {_type_name(kind)} {name} = {number};"


def _message_types(rows: Iterable[Row]) -> set[str]:
    found: set[str] = set()
    for row in rows:
        found.update(part for part in row["type"].split(",") if part not in SCALARS)
    return found


def api_files() -> dict[str, str]:
    """Path -> text of every upstream API package."""
    fields: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_table(API_TABLES / "proto_fields.tsv"):
        fields[row["package"], row["message"]].append(row)
    names: dict[str, set[str]] = defaultdict(set)
    for row in read_table(API_TABLES / "messages.tsv"):
        names[row["package"]].add(row["message"])
    for package, message in fields:
        names[package].add(message)
    files: dict[str, str] = {}
    for package in sorted(names):
        rows = [row for message in names[package] for row in fields[package, message]]
        imports = sorted({file_of(package_of(name)) for name in _message_types(rows)} - {file_of(package)})
        parts = [HEADER, 'syntax = "proto2";\n', f"package {package};\n"]
        parts.append("".join(f'import "{path}";\n' for path in imports))
        for message in sorted(names[package]):
            ordered = sorted(fields[package, message], key=lambda row: int(row["field_number"]))
            body = "\n".join(_field_line(row) for row in ordered)
            parts.append(f"message {message} {{\n{body}\n}}\n" if body else f"message {message} {{}}\n")
        files[file_of(package)] = "\n".join(part for part in parts if part)
    return files


def _cri_enum(name: str, rows: list[Row], indent: str) -> str:
    values = "\n".join(f"{indent}  {row['value']} = {row['number']};" for row in rows)
    return f"{indent}enum {name} {{\n{values}\n{indent}}}"


def _cri_field(row: Row, indent: str) -> str:
    deprecated = " [deprecated = true]" if row["deprecated"] == "1" else ""
    number = row["field_number"]
    if row["label"] == "map":
        key, value = row["type"].split(",")
        return f"{indent}  map<{key}, {value}> {row['field_name']} = {number}{deprecated};"
    label = {"repeated": "repeated ", "singular": ""}[row["label"]]
    if row["proto3_optional"] == "1":
        label = "optional "
    return f"{indent}  {label}{row['type']} {row['field_name']} = {number}{deprecated};"


def cri_file() -> dict[str, str]:
    """Path -> text of CRI v1."""
    fields: dict[str, list[Row]] = defaultdict(list)
    for row in read_table(CRI_TABLES / "cri_fields.tsv"):
        row["type"] = row["type"].replace("runtime.v1.", "")
        fields[row["message"]].append(row)
    enums: dict[str, list[Row]] = defaultdict(list)
    for row in read_table(CRI_TABLES / "cri_enums.tsv"):
        enums[row["enum"]].append(row)
    methods: dict[str, list[Row]] = defaultdict(list)
    for row in read_table(CRI_TABLES / "cri_services.tsv"):
        methods[row["service"]].append(row)
    parts = [HEADER, 'syntax = "proto3";\n', "package runtime.v1;\n"]
    for service, rows in sorted(methods.items()):
        lines = []
        for row in rows:
            stream_in = "stream " if row["client_streaming"] == "1" else ""
            stream_out = "stream " if row["server_streaming"] == "1" else ""
            request, response = (row[side].removeprefix("runtime.v1.") for side in ("request", "response"))
            lines.append(f"  rpc {row['rpc']}({stream_in}{request}) returns ({stream_out}{response});")
        parts.append(f"service {service} {{\n" + "\n".join(lines) + "\n}\n")
    parts.extend(_cri_enum(name, rows, "") + "\n" for name, rows in sorted(enums.items()) if "." not in name)
    for row in sorted(read_table(CRI_TABLES / "cri_messages.tsv"), key=lambda row: row["message"]):
        name = row["message"]
        nested = [
            _cri_enum(key.split(".")[1], rows, "  ")
            for key, rows in enums.items()
            if key.startswith(name + ".")
        ]
        ordered = sorted(fields[name], key=lambda row: int(row["field_number"]))
        lines = nested + [_cri_field(field, "") for field in ordered]
        parts.append(
            f"message {name} {{\n" + "\n".join(lines) + "\n}\n" if lines else f"message {name} {{}}\n"
        )
    return {CRI_FILE: "\n".join(parts)}


@dataclass(frozen=True)
class Served:
    """One row of served.tsv joined with its message."""

    package: str
    kind: str
    methods: tuple[str, ...]
    stored: bool  # else it is answered and forgotten: there is only Create

    @property
    def service_package(self) -> str:
        """`podyard.` and the last two labels of the message package."""
        return "podyard." + ".".join(self.package.split(".")[-2:])

    @property
    def message(self) -> str:
        return f".{self.package}.{self.kind}"


def served_rows() -> list[Served]:
    kinds = {
        (row["group"], row["version"], row["plural"]): (row["kind"], bool(row["etcd_key_template"]))
        for row in read_table(API_TABLES / "resources.tsv")
        if not row["subresource"]
    }
    packages = {
        tuple(row["gvk"].rpartition("/")[::2]): row["package"]
        for row in read_table(API_TABLES / "messages.tsv")
        if row["gvk"]
    }
    rows = []
    for row in read_table(API_TABLES / "served.tsv"):
        kind, stored = kinds[row["group"], row["version"], row["plural"]]
        api_version = f"{row['group']}/{row['version']}" if row["group"] else row["version"]
        methods = tuple(name for name in row["methods"].split("|") if name)
        rows.append(Served(packages[api_version, kind], kind, methods, stored))
    return rows


# Extra methods of single kinds: name -> (request, response), {kind} filled in.
_EXTRA_METHODS = {
    "UpdateStatus": ("{kind}UpdateRequest", "{message}"),
    "UpdateApproval": ("{kind}UpdateRequest", "{message}"),
    "Finalize": ("{kind}UpdateRequest", "{message}"),
    "GetScale": (".podyard.meta.v1.GetRequest", ".k8s.io.api.autoscaling.v1.Scale"),
    "UpdateScale": (".podyard.meta.v1.ScaleUpdateRequest", ".k8s.io.api.autoscaling.v1.Scale"),
    "Bind": ("{kind}BindRequest", f".{META}.Status"),
    "Evict": ("{kind}EvictRequest", f".{META}.Status"),
    "Logs": ("{kind}LogsRequest", "stream .podyard.meta.v1.LogChunk"),
    "Exec": ("stream {kind}ExecRequest", "stream .podyard.meta.v1.CommandOutput"),
    "Attach": ("stream {kind}AttachRequest", "stream .podyard.meta.v1.CommandOutput"),
    "PortForward": ("stream {kind}PortForwardRequest", "stream .podyard.meta.v1.ConnectionEvent"),
    "CreateToken": ("{kind}CreateTokenRequest", ".k8s.io.api.authentication.v1.TokenRequest"),
}
_COMMAND_REQUEST = (
    "message {{kind}}{verb}Request {{{{\n  oneof input {{{{\n"
    "    // The first message, and only the first: {what}.\n    {{kind}}{verb}Start start = 1;\n"
    "    // Bytes for its standard input. The end of the requests is the end of the input.\n"
    "    bytes stdin = 2;\n"
    "    // The terminal's size from now on, where options.tty is set.\n"
    "    .podyard.meta.v1.TerminalSize resize = 3;\n  }}}}\n}}}}\n\n"
    "message {{kind}}{verb}Start {{{{\n  string namespace = 1;\n  string name = 2;\n"
    "  .k8s.io.api.core.v1.Pod{verb}Options options = 3;\n}}}}\n"
)
_EXTRA_REQUESTS = {
    "Exec": _COMMAND_REQUEST.format(verb="Exec", what="what to run"),
    "Attach": _COMMAND_REQUEST.format(verb="Attach", what="what to attach to"),
    "PortForward": "message {kind}PortForwardRequest {{\n  oneof input {{\n"
    "    // The first message, and only the first: whose ports.\n    {kind}PortForwardStart start = 1;\n"
    "    // Begins a connection; several may be open at once.\n"
    "    .podyard.meta.v1.ConnectionOpen open = 2;\n"
    "    // Bytes for the pod.\n    .podyard.meta.v1.ConnectionData data = 3;\n"
    "    // Nothing more follows for the pod on this connection, which may still answer.\n"
    "    uint32 end = 4;\n  }}\n}}\n\n"
    "message {kind}PortForwardStart {{\n  string namespace = 1;\n  string name = 2;\n}}\n",
    "Bind": "message {kind}BindRequest {{\n  string namespace = 1;\n  string name = 2;\n"
    "  .k8s.io.api.core.v1.Binding object = 3;\n"
    "  .k8s.io.apimachinery.pkg.apis.meta.v1.CreateOptions options = 4;\n}}\n",
    "Evict": "message {kind}EvictRequest {{\n  string namespace = 1;\n  string name = 2;\n"
    "  .k8s.io.api.policy.v1.Eviction object = 3;\n"
    "  .k8s.io.apimachinery.pkg.apis.meta.v1.CreateOptions options = 4;\n}}\n",
    "Logs": "message {kind}LogsRequest {{\n  string namespace = 1;\n  string name = 2;\n"
    "  .k8s.io.api.core.v1.PodLogOptions options = 3;\n}}\n",
    "CreateToken": "message {kind}CreateTokenRequest {{\n  string namespace = 1;\n  string name = 2;\n"
    "  .k8s.io.api.authentication.v1.TokenRequest object = 3;\n"
    f"  .{META}.CreateOptions options = 4;\n}}}}\n",
}


# Where the bodies of methods come from that are of another group than their kind.
_BODY_PACKAGES = {
    "GetScale": "k8s.io.api.autoscaling.v1",
    "CreateToken": "k8s.io.api.authentication.v1",
    "Evict": "k8s.io.api.policy.v1",
}


def _service(row: Served) -> str:
    kind, message = row.kind, row.message
    shared = ".podyard.meta.v1"
    create = f"  rpc Create({kind}CreateRequest) returns ({message});"
    if not row.stored:
        return f"service {kind}Service {{\n{create}\n}}\n\n{_write_request(row, 'Create')}"
    lines = [
        f"  rpc Get({shared}.GetRequest) returns ({message});",
        f"  rpc List({shared}.ListRequest) returns ({message}List);",
        f"  rpc Watch({shared}.ListRequest) returns (stream {kind}WatchBatch);",
        create,
        f"  rpc Update({kind}UpdateRequest) returns ({message});",
        f"  rpc Patch({shared}.PatchRequest) returns ({message});",
        f"  rpc Delete({shared}.DeleteRequest) returns ({shared}.DeleteResponse);",
        f"  rpc DeleteCollection({shared}.DeleteCollectionRequest) returns ({message}List);",
    ]
    for method in row.methods:
        request, response = (part.format(kind=kind, message=message) for part in _EXTRA_METHODS[method])
        lines.append(f"  rpc {method}({request}) returns ({response});")
    parts = [f"service {kind}Service {{\n" + "\n".join(lines) + "\n}\n"]
    parts.extend(_EXTRA_REQUESTS[name].format(kind=kind) for name in row.methods if name in _EXTRA_REQUESTS)
    parts.extend(_write_request(row, verb) for verb in ("Create", "Update"))
    parts.append(
        f"message {kind}WatchEvent {{\n  // ADDED, MODIFIED, DELETED or BOOKMARK.\n"
        f"  string type = 1;\n  {message} object = 2;\n}}\n"
    )
    parts.append(
        f"message {kind}WatchBatch {{\n  repeated {kind}WatchEvent events = 1;\n"
        "  // Resume a broken watch from here.\n  string resource_version = 2;\n"
        "  // The initial events asked for by sendInitialEvents have all been sent.\n  bool synced = 3;\n}\n"
    )
    return "\n".join(parts)


def _write_request(row: Served, verb: str) -> str:
    return (
        f"message {row.kind}{verb}Request {{\n  string namespace = 1;\n  {row.message} object = 2;\n"
        f"  .{META}.{verb}Options options = 3;\n}}\n"
    )


def service_files() -> dict[str, str]:
    """Path -> text of the typed services, one file for each service package."""
    by_package: dict[str, list[Served]] = defaultdict(list)
    for row in served_rows():
        by_package[row.service_package].append(row)
    files = {}
    for package, rows in sorted(by_package.items()):
        imports = {file_of(META)} | {file_of(row.package) for row in rows}
        if any(row.stored for row in rows):
            imports.add("podyard/meta/v1/meta.proto")
        for method in {name for row in rows for name in row.methods if name in _BODY_PACKAGES}:
            imports.add(file_of(_BODY_PACKAGES[method]))
        head = [HEADER, 'syntax = "proto3";\n', f"package {package};\n"]
        head.append("".join(f'import "{path}";\n' for path in sorted(imports)))
        files[f"{package.replace('.', '/')}/service.proto"] = "\n".join(
            head + [_service(row) for row in rows]
        )
    return files


def all_files() -> dict[str, str]:
    """Path below proto/ -> text of every generated file."""
    return api_files() | cri_file() | service_files()


def main() -> int:
    for path, text in all_files().items():
        target = PROTO / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
