"""A client of plain grpcio: run as a program in an environment that has no podyard.

Arguments: address, a folder with ca.crt, client.crt and client.key, a prefix for names. Prints `done`
when everything was as it must be.
"""

import pathlib
import sys

import grpc
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import proto_reflection_descriptor_database as reflection
from k8s.io.api.core.v1 import generated_pb2 as core
from k8s.io.apimachinery.pkg.apis.meta.v1 import generated_pb2 as meta
from podyard.core.v1 import service_pb2 as messages
from podyard.core.v1 import service_pb2_grpc as services
from podyard.meta.v1 import meta_pb2 as rpc


def without_podyard() -> None:
    import podyard

    # Only the stubs have this name: a namespace package without our code.
    assert podyard.__file__ is None
    for name in ("podyard.client", "podyard.api", "apiserver"):
        try:
            __import__(name)
        except ImportError:
            continue
        raise AssertionError(f"{name} can be imported")


def config_map(name: str, **data: str) -> core.ConfigMap:
    metadata = meta.ObjectMeta(name=name, labels={"app": "plain"})
    return core.ConfigMap(metadata=metadata, data=data)


def status_of(error: grpc.RpcError) -> meta.Status:
    """The Status inside the details of a failed call."""
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    outer, status = status_pb2.Status.FromString(details), meta.Status()
    assert outer.code == error.code().value[0]
    assert outer.details[0].Unpack(status)
    return status


def life(maps: services.ConfigMapServiceStub, name: str) -> None:
    everything = meta.ListOptions(labelSelector="app=plain")
    before = maps.List(rpc.ListRequest(namespace="default", options=everything))
    made = maps.Create(messages.ConfigMapCreateRequest(namespace="default", object=config_map(name, a="1")))
    listed = maps.List(rpc.ListRequest(namespace="default", options=everything))
    assert [item.metadata.name for item in listed.items] == [name]

    patch = rpc.PatchRequest(
        namespace="default", name=name, type="application/merge-patch+json", body=b'{"data":{"b":"2"}}'
    )
    assert dict(maps.Patch(patch).data) == {"a": "1", "b": "2"}

    # `made` is stale now: the conflict says so in upstream's words.
    made.data["a"] = "3"
    try:
        maps.Update(messages.ConfigMapUpdateRequest(namespace="default", object=made))
    except grpc.RpcError as error:
        conflict = error
    else:
        raise AssertionError("a stale update went through")
    status = status_of(conflict)
    assert (conflict.code(), status.code) == (grpc.StatusCode.ABORTED, 409)
    assert (status.reason, status.details.name) == ("Conflict", name)
    assert "the object has been modified" in status.message
    gone = maps.Delete(rpc.DeleteRequest(namespace="default", name=name))
    assert (gone.status.status, gone.status.details.uid) == ("Success", made.metadata.uid)

    # A watch from before all that, broken in the middle and resumed where it was.
    seen, version = [], before.metadata.resourceVersion
    while len(seen) < 3:
        options = meta.ListOptions(labelSelector="app=plain", resourceVersion=version)
        stream = maps.Watch(rpc.ListRequest(namespace="default", options=options), timeout=10)
        batch = next(stream)
        stream.cancel()
        first = batch.events[0]
        seen.append((first.type, dict(first.object.data)))
        version = first.object.metadata.resourceVersion
    assert seen == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "1", "b": "2"}),
        ("DELETED", {"a": "1", "b": "2"}),
    ]


def main() -> None:
    without_podyard()
    address, folder, name = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    ca, key, cert = ((folder / file).read_bytes() for file in ("ca.crt", "client.key", "client.crt"))
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, cert)) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        database = reflection.ProtoReflectionDescriptorDatabase(channel)
        names = set(database.get_services())
        assert {
            "podyard.core.v1.PodService",
            "podyard.meta.v1.WatchService",
            "grpc.health.v1.Health",
        } <= names
        for service in names:
            database.FindFileContainingSymbol(service)
        life(services.ConfigMapServiceStub(channel), name)
    print("done")


if __name__ == "__main__":
    main()
