"""The official Python client on every kind: its models refuse answers without what they require."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from urllib3.exceptions import HTTPError

from podyard.api import resources
from podyard.api.resources import Resource
from tests.cluster import generated
from tests.cluster.every_kind import example, makeable
from tests.cluster.generated import INITIAL_EVENTS, Kind, listing
from tests.cluster.live import Live
from tests.cluster.samples import pod, server
from tests.cluster.scenario import deployment
from tests.cluster.support import Cluster
from tests.unit.apiserver.test_registry_rows import status_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

VIEW = "-view"
PKI = "/etc/podyard/pki"
ETCD_FILES = ("--cacert", f"{PKI}/ca.crt", "--cert", f"{PKI}/server.crt", "--key", f"{PKI}/server.key")
PATCHES: dict[str, Any] = {
    "application/json-patch+json": [{"op": "add", "path": "/metadata/labels/json", "value": "1"}],
    "application/merge-patch+json": {"metadata": {"labels": {"merge": "2", "json": None}}},
    "application/strategic-merge-patch+json": {"metadata": {"labels": {"strategic": "3"}}},
}


def make(kind: Kind, name: str, namespace: str) -> Any:
    """Creates the kind's example, and says of it what a controller might."""
    made = kind.call("create", namespace, body=example(kind.row, name, namespace))
    if "status" in kind.row.subresources:
        kind.call("patch", namespace, "_status", name=made.metadata.name, body=status_of(kind.row))
    return made


@pytest.fixture(scope="module")
def connection(kubeconfig: Path) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(kubeconfig)) as found:
        yield found


@pytest.fixture(scope="module")
def core(connection: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(connection)


@pytest.fixture(scope="module")
def apis(connection: client.ApiClient) -> list[Any]:
    """Every API class of one stable version of a group."""
    names = [name for name in dir(client) if re.fullmatch(r"[A-Za-z]+V\d+Api", name)]
    return [getattr(client, name)(connection) for name in names]


@pytest.fixture(scope="module")
def kinds(connection: client.ApiClient) -> dict[Resource, Kind]:
    """What the client has of the kinds that are served."""
    return generated.kinds(client, connection)


@pytest.fixture
def inhabited(kinds: dict[Resource, Kind], place: str) -> Iterator[str]:
    """The module's namespace with an object of every kind, and one of every other kind beside it.

    They go again by collections: a quota among them is not to count what other tests make.
    """
    try:
        for row in makeable():
            # What a view makes is stored as another kind.
            make(kinds[row], place if row.storage is None else f"{place}{VIEW}", place)
        yield place
    finally:
        for row in makeable():
            if "deletecollection" in row.verbs:
                kinds[row].call("delete_collection", place, label_selector=f"test={place}")


def test_every_list(kinds: dict[Resource, Kind], inhabited: str) -> None:
    """Each answer is whole in the client's eyes, and none is empty."""
    called, wrong = 0, {}
    for kind in kinds.values():
        for name, method in kind.lists().items():
            called += 1
            arguments = {"namespace": inhabited} if "_namespaced_" in name else {}
            if kind.row.qualified == "events.events.k8s.io":
                # The client refuses events that were made as `v1`, without an eventTime: of any server.
                arguments["field_selector"] = f"metadata.name={inhabited}{VIEW}"
            try:
                answer = method(**arguments)
            except Exception as error:
                wrong[name] = f"{type(error).__name__}: {error}"
                continue
            complaint = kind.complaint(answer)
            if complaint:
                wrong[name] = complaint
    assert wrong == {}
    assert called >= len(resources.RESOURCES)


def test_what_is_not_served_is_absent(apis: list[Any], kinds: dict[Resource, Kind], place: str) -> None:
    """The client is newer, and knows groups and kinds that this cluster has not."""
    known = {(type(api), noun) for api in apis for noun in listing(api).values()}
    served = {(type(kind.api), kind.noun) for kind in kinds.values()}
    assert known > served
    for api in apis:
        for name, noun in listing(api).items():
            if (type(api), noun) not in served:
                with pytest.raises(client.ApiException) as refused:
                    getattr(api, name)(**({"namespace": place} if "_namespaced_" in name else {}))
                assert refused.value.status == 404, name


def replace(kind: Kind, name: str, namespace: str) -> tuple[Any, Any]:
    """What was read goes back in the client's words; again where a controller was faster.

    Returns:
        What was sent, what was answered.
    """
    while True:
        found = kind.call("read", namespace, name=name)
        found.metadata.labels["replaced"] = "0"
        try:
            return found, kind.call("replace", namespace, name=name, body=found, field_validation="Strict")
        except client.ApiException as error:
            if error.status != 409:
                raise


@pytest.mark.parametrize("row", makeable(), ids=lambda row: row.qualified)
def test_life_of_an_object(row: Resource, kinds: dict[Resource, Kind], place: str) -> None:
    kind = kinds[row]
    made = make(kind, f"{place}-life", place)
    name, uid = made.metadata.name, made.metadata.uid
    read = kind.call("read", place, name=name)
    assert (read.kind, read.api_version, read.metadata.uid) == (row.kind, row.api_version, uid)
    if "status" in row.subresources:
        assert kind.call("read", place, "_status", name=name).metadata.uid == uid
    sent, replaced = replace(kind, name, place)
    assert replaced.metadata.labels["replaced"] == "0"
    if hasattr(read, "spec"):
        # The client has written all that it read.
        assert replaced.spec == sent.spec
    for content_type, body in PATCHES.items():
        patched = kind.call("patch", place, name=name, body=body, _content_type=content_type)
    labels = {key: patched.metadata.labels.get(key) for key in ("replaced", "json", "merge", "strategic")}
    assert labels == {"replaced": "0", "json": None, "merge": "2", "strategic": "3"}

    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    with pytest.raises(client.ApiException) as refused:
        kind.call("delete", place, name=name, body=other)
    assert refused.value.status == 409
    kind.call("delete", place, name=name, dry_run="All")
    options = client.V1DeleteOptions(
        grace_period_seconds=0,
        propagation_policy="Background",
        preconditions=client.V1Preconditions(uid=uid),
    )
    deleted = kind.call("delete", place, name=name, body=options)
    # Its own methods say of which kinds the answer is the object.
    shown = not isinstance(deleted, (dict, client.V1Status))
    assert shown == row.shows_deleted
    assert (deleted.metadata.uid if shown else status_uid(deleted)) == uid
    with pytest.raises(client.ApiException) as refused:
        kind.call("read", place, name=name)
    assert refused.value.status == 404


def status_uid(answer: Any) -> str:
    """The uid in a Status, which the client hands on as it came or as its model."""
    found = answer if isinstance(answer, dict) else client.ApiClient().sanitize_for_serialization(answer)
    return str(found["details"]["uid"])


def body_of(refused: pytest.ExceptionInfo[client.ApiException]) -> Any:
    """The Status that an exception holds."""
    error = refused.value
    assert error.headers["Content-Type"] == "application/json"
    body = json.loads(error.body)
    assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", error.status)
    return body


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), data=data)


def test_what_is_refused_is_said(core: client.CoreV1Api, place: str) -> None:
    with pytest.raises(client.ApiException) as refused:
        core.read_namespaced_config_map("absent", place)
    body = body_of(refused)
    assert (refused.value.status, refused.value.reason, body["reason"]) == (404, "Not Found", "NotFound")
    assert body["message"] == 'configmaps "absent" not found'
    assert body["details"] == {"name": "absent", "kind": "configmaps"}

    stale = core.create_namespaced_config_map(place, config_map("refused"))
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_config_map(place, config_map("refused"))
    assert (refused.value.status, body_of(refused)["reason"]) == (409, "AlreadyExists")
    core.patch_namespaced_config_map("refused", place, {"data": {"a": "1"}})
    with pytest.raises(client.ApiException) as refused:
        core.replace_namespaced_config_map("refused", place, stale)
    assert (refused.value.status, body_of(refused)["reason"]) == (409, "Conflict")
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_config_map(place, config_map("Not A Name", **{"a b": "1"}))
    body = body_of(refused)
    assert (refused.value.status, body["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in body["details"]["causes"]] == [
        "metadata.name",
        "metadata.labels",
        "data[a b]",
    ]
    unknown = {"metadata": {"name": "refused"}, "dat": {}}
    with pytest.raises(client.ApiException) as refused:
        core.patch_namespaced_config_map("refused", place, unknown, field_validation="Strict")
    assert refused.value.status == 422
    assert 'unknown field "dat"' in body_of(refused)["message"]


def test_nobody_is_refused(connection: client.ApiClient, place: str) -> None:
    """A client without a certificate learns the version, and nothing else."""
    nobody = copy.copy(connection.configuration)
    nobody.cert_file = nobody.key_file = None
    with client.ApiClient(nobody) as unknown:
        assert client.VersionApi(unknown).get_code().git_version.startswith("v1.36.")
        with pytest.raises(client.ApiException) as refused:
            client.CoreV1Api(unknown).list_namespaced_pod(place)
    assert (refused.value.status, body_of(refused)["reason"]) == (401, "Unauthorized")


def test_discovery(connection: client.ApiClient) -> None:
    version = client.VersionApi(connection).get_code()
    assert (version.major, version.minor) == ("1", "36")
    assert client.CoreApi(connection).get_api_versions().versions == ["v1"]
    groups = {group.name: group for group in client.ApisApi(connection).get_api_versions().groups}
    assert set(groups) == {row.group for row in resources.OFFERED if row.group}
    assert client.AppsApi(connection).get_api_group().preferred_version.group_version == "apps/v1"
    pods = {
        entry.name: entry
        for entry in client.CoreV1Api(connection).get_api_resources().resources
        if entry.name.split("/")[0] == "pods"
    }
    assert pods["pods"].short_names == ["po"]
    assert {"pods/status", "pods/log", "pods/exec"} < set(pods)


def test_pages(core: client.CoreV1Api, place: str) -> None:
    names = [f"page-{number}" for number in range(5)]
    for name in names:
        core.create_namespaced_config_map(
            place, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"paged": "yes"}))
        )
    found, left, token = [], [], None
    while token != "":
        page = core.list_namespaced_config_map(place, label_selector="paged=yes", limit=2, _continue=token)
        found += [item.metadata.name for item in page.items]
        left.append(page.metadata.remaining_item_count)
        token = page.metadata._continue or ""
    assert found == names
    # What is left is not counted where a selector chooses.
    assert left == [None, None, None]
    assert core.delete_collection_namespaced_config_map(place, label_selector="paged=yes")
    assert not core.list_namespaced_config_map(place, label_selector="paged=yes").items


def test_a_watch(core: client.CoreV1Api, place: str) -> None:
    listed = core.list_namespaced_config_map(place)
    core.create_namespaced_config_map(place, config_map("watched", a="1"))
    core.patch_namespaced_config_map("watched", place, {"data": {"a": "2"}})
    core.delete_namespaced_config_map("watched", place)
    watcher, seen = watch.Watch(), []
    arguments: dict[str, Any] = {"namespace": place, "label_selector": "app=watched"}
    arguments["resource_version"] = listed.metadata.resource_version
    for event in watcher.stream(core.list_namespaced_config_map, **arguments):
        seen.append((event["type"], event["object"].data))
        if len(seen) == 3:
            watcher.stop()
    assert seen == [("ADDED", {"a": "1"}), ("MODIFIED", {"a": "2"}), ("DELETED", {"a": "2"})]
    # It has a time of its own, and goes on where it was.
    assert list(watch.Watch().stream(core.list_namespaced_config_map, **arguments, timeout_seconds=1))
    arguments["resource_version"] = watcher.resource_version
    assert not list(watch.Watch().stream(core.list_namespaced_config_map, **arguments, timeout_seconds=1))


def test_a_watch_begins_with_what_is_there(core: client.CoreV1Api, place: str) -> None:
    core.create_namespaced_config_map(place, config_map("initial"))
    watcher, seen = watch.Watch(), []
    for event in watcher.stream(
        core.list_namespaced_config_map,
        place,
        label_selector="app=initial",
        **INITIAL_EVENTS,
    ):
        seen.append(event)
        if event["type"] == "BOOKMARK":
            watcher.stop()
    assert [event["type"] for event in seen] == ["ADDED", "BOOKMARK"]
    metadata = seen[1]["raw_object"]["metadata"]
    assert metadata["annotations"]["k8s.io/initial-events-end"] == "true"
    assert watcher.resource_version == metadata["resourceVersion"]


def restarted(cluster: Cluster, core: client.CoreV1Api, namespace: str) -> str:
    """Kills the API server's process; the version of a list by its successor."""
    live = Live(cluster.name, cluster.data)
    assert live.kill(live.container("apiserver-1"), "apiserver")

    def listed() -> str:
        # None is there, or one that is not ready.
        with contextlib.suppress(HTTPError, client.ApiException):
            return str(core.list_namespaced_config_map(namespace).metadata.resource_version)
        return ""

    return cluster.eventually(listed, "the API server answers again")


def first(core: client.CoreV1Api, namespace: str, name: str, version: str) -> str:
    """The type of the first event about a ConfigMap after a version."""
    watcher, found = watch.Watch(), ""
    for event in watcher.stream(core.list_namespaced_config_map, namespace, resource_version=version):
        if event["object"].metadata.name == name:
            found = event["type"]
            watcher.stop()
    return found


def test_a_watch_from_too_long_ago_begins_anew(
    core: client.CoreV1Api, place: str, shared_cluster: Cluster
) -> None:
    """As its users do: 410 is said inside the stream, then a list says where to go on."""
    version = core.list_namespaced_config_map(place).metadata.resource_version
    made = core.create_namespaced_config_map(place, config_map("compacted"))
    # Without the history in the store a new API server knows nothing of what was before it.
    endpoint = f"https://{shared_cluster.name}-etcd-1:2379"
    shared_cluster.run_in(
        "etcd-1", "etcdctl", "--endpoints", endpoint, *ETCD_FILES, "compact", made.metadata.resource_version
    )
    now = restarted(shared_cluster, core, place)
    with pytest.raises(client.ApiException) as refused:
        first(core, place, "compacted", version)
    assert refused.value.status == 410
    assert refused.value.reason.startswith(f"Expired: too old resource version: {version} (")
    core.create_namespaced_config_map(place, config_map("anew"))
    assert first(core, place, "anew", now) == "ADDED"


def test_the_dynamic_client(connection: client.ApiClient, place: str, tmp_path: Path) -> None:
    found = dynamic.DynamicClient(connection, cache_file=str(tmp_path / "discovered"))
    assert found.version["kubernetes"]["minor"] == "36"
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    assert (maps.namespaced, maps.name, maps.short_names) == (True, "configmaps", ["cm"])
    sets = found.resources.get(api_version="apps/v1", kind="Deployment")
    assert (sets.group, sets.name, sets.namespaced) == ("apps", "deployments", True)
    assert {"status", "scale"} <= set(sets.subresources)

    version = maps.get(namespace=place).metadata.resourceVersion
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic"}, "data": {"a": "1"}}
    made = maps.create(body=body, namespace=place)
    changed = made.to_dict() | {"data": {"a": "2"}}
    assert maps.replace(body=changed, namespace=place).data.a == "2"
    merged = maps.patch(
        body={"metadata": {"name": "dynamic"}, "data": {"b": "3"}},
        namespace=place,
        content_type="application/merge-patch+json",
    )
    assert merged.data.to_dict() == {"a": "2", "b": "3"}
    assert maps.get(name="dynamic", namespace=place).data.b == "3"
    assert maps.delete(name="dynamic", namespace=place).status == "Success"
    with pytest.raises(dynamic.exceptions.NotFoundError):
        maps.get(name="dynamic", namespace=place)
    events = maps.watch(namespace=place, name="dynamic", resource_version=version, timeout=2)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_yaml_is_created(connection: client.ApiClient, place: str, tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("one", "two")]
    file.write_text(
        yaml.safe_dump_all([{"apiVersion": "v1", "kind": "List", "items": maps}, deployment("yaml")])
    )
    made = utils.create_from_yaml(connection, str(file), namespace=place)
    assert [obj.metadata.name for objects in made for obj in objects] == ["one", "two", "yaml"]
    with pytest.raises(utils.FailToCreateError) as refused:
        utils.create_from_yaml(connection, str(file), namespace=place)
    assert [error.status for error in refused.value.api_exceptions] == [409, 409, 409]


def test_a_deployment_is_scaled(connection: client.ApiClient, place: str, shared_cluster: Cluster) -> None:
    apps, core = client.AppsV1Api(connection), client.CoreV1Api(connection)
    apps.create_namespaced_deployment(place, deployment("scaled"))
    scale = apps.read_namespaced_deployment_scale("scaled", place)
    assert (scale.kind, scale.spec.replicas, scale.status.selector) == ("Scale", 3, "app=scaled")
    scale.spec.replicas = 1
    # Unconditional: the Deployment's status changes all the time.
    scale.metadata.resource_version = None
    assert apps.replace_namespaced_deployment_scale("scaled", place, scale).spec.replicas == 1
    apps.patch_namespaced_deployment_scale("scaled", place, {"spec": {"replicas": 2}})

    def ready() -> bool:
        status = apps.read_namespaced_deployment_status("scaled", place).status
        pods = core.list_namespaced_pod(
            place, label_selector="app=scaled", field_selector="status.phase=Running"
        )
        return bool(status.ready_replicas == len(pods.items) == 2)

    shared_cluster.eventually(ready, "two pods")
    apps.delete_namespaced_deployment("scaled", place, propagation_policy="Foreground")

    def gone() -> bool:
        with contextlib.suppress(client.ApiException):
            found = apps.read_namespaced_deployment("scaled", place)
            # While its pods go it is marked, and there.
            assert found.metadata.deletion_timestamp is not None
            return False
        return not core.list_namespaced_pod(place, label_selector="app=scaled").items

    shared_cluster.eventually(gone, "the Deployment and its pods are gone")


@pytest.fixture(scope="module")
def web(core: client.CoreV1Api, place: str) -> str:
    """A running pod; a watch waits for it."""
    core.create_namespaced_pod(place, server("web"))
    watcher = watch.Watch()
    for event in watcher.stream(core.list_namespaced_pod, place, label_selector="app=web"):
        conditions = event["object"].status.conditions or ()
        if any((condition.type, condition.status) == ("Ready", "True") for condition in conditions):
            watcher.stop()
    return "web"


def test_logs(core: client.CoreV1Api, web: str, place: str) -> None:
    watcher, lines = watch.Watch(), []
    for line in watcher.stream(core.read_namespaced_pod_log, web, place):
        lines.append(line)
        if len(lines) == 3:
            watcher.stop()
    assert lines == ["line 1", "line 2", "line 3"]
    assert core.read_namespaced_pod_log(web, place, limit_bytes=6) == "line 1"
    (last,) = core.read_namespaced_pod_log(web, place, tail_lines=1, timestamps=True).splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z line \d+", last)
    with pytest.raises(client.ApiException) as refused:
        core.read_namespaced_pod_log(web, place, container="none")
    assert body_of(refused)["message"] == "container none is not valid for pod web"


def test_a_pod_is_evicted(connection: client.ApiClient, place: str, shared_cluster: Cluster) -> None:
    core, policy = client.CoreV1Api(connection), client.PolicyV1Api(connection)
    core.create_namespaced_pod(place, pod("evicted"))
    labels = {"matchLabels": {"app": "evicted"}}
    budget = {"metadata": {"name": "evicted"}, "spec": {"minAvailable": 1, "selector": labels}}
    policy.create_namespaced_pod_disruption_budget(place, budget)
    shared_cluster.eventually(
        lambda: policy.read_namespaced_pod_disruption_budget("evicted", place).status.current_healthy == 1,
        "the budget counts the pod",
    )
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="evicted", namespace=place))
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_pod_eviction("evicted", place, eviction)
    assert refused.value.status == 429
    assert body_of(refused)["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    policy.delete_namespaced_pod_disruption_budget("evicted", place)
    core.create_namespaced_pod_eviction("evicted", place, eviction)

    def gone() -> bool:
        return not core.list_namespaced_pod(place, label_selector="app=evicted").items

    shared_cluster.eventually(gone, "the evicted pod is gone")


def test_a_token_is_asked_for_and_used(connection: client.ApiClient, place: str) -> None:
    core = client.CoreV1Api(connection)
    asked = {"spec": {"audiences": [], "expirationSeconds": 600}}
    answer = core.create_namespaced_service_account_token("default", place, asked)
    assert answer.status.expiration_timestamp.tzinfo is not None
    bearer = copy.copy(connection.configuration)
    bearer.cert_file = bearer.key_file = None
    bearer.api_key = {"authorization": f"Bearer {answer.status.token}"}
    with client.ApiClient(bearer) as account:
        review = client.AuthenticationV1Api(account).create_self_subject_review({})
        assert review.status.user_info.username == f"system:serviceaccount:{place}:default"
    token = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=answer.status.token))
    assert client.AuthenticationV1Api(connection).create_token_review(token).status.authenticated


class Candidate:
    """One that wants to lead, by the client's own election."""

    def __init__(self, name: str, namespace: str) -> None:
        self.cut_off = False
        self.history: list[str] = []
        lock = LeaseLock("elected", namespace, name)
        renew = lock.update
        # As when the server can't be reached.
        lock.update = lambda *arguments: not self.cut_off and renew(*arguments)
        # Far apart, so that a server that is slow once takes no leader's lease.
        options = Config(
            lock,
            lease_duration=10,
            renew_deadline=7,
            retry_period=1,
            onstarted_leading=lambda: self.history.append("leads"),
            onstopped_leading=lambda: self.history.append("stopped"),
        )
        # Who follows does so for ever: where the test fails, it ends with the process.
        self.thread = threading.Thread(target=LeaderElection(options).run, daemon=True)
        self.thread.start()


def test_reviews(connection: client.ApiClient, place: str) -> None:
    """Their answers, too, have all that the models require."""
    api = client.AuthorizationV1Api(connection)
    attributes = {"namespace": place, "verb": "get", "resource": "pods"}
    own = api.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
    asked = {"spec": {"resourceAttributes": attributes, "user": "tester"}}
    other = api.create_subject_access_review(asked)
    local = api.create_namespaced_local_subject_access_review(
        place, asked | {"metadata": {"namespace": place}}
    )
    assert all(review.status.allowed is True for review in (own, other, local))
    rules = api.create_self_subject_rules_review({"spec": {"namespace": place}}).status
    assert rules.resource_rules
    assert rules.non_resource_rules is not None


def test_a_leader_is_elected_and_another_follows(
    kubeconfig: Path, place: str, shared_cluster: Cluster
) -> None:
    config.load_kube_config(str(kubeconfig))
    leases = client.CoordinationV1Api()

    def holder() -> str:
        return str(leases.read_namespaced_lease("elected", place).spec.holder_identity)

    first = Candidate("first", place)
    shared_cluster.eventually(lambda: first.history, "the first leads")
    acquired = leases.read_namespaced_lease("elected", place).spec
    second = Candidate("second", place)

    def renewed() -> bool:
        spec = leases.read_namespaced_lease("elected", place).spec
        return bool(spec.renew_time > acquired.renew_time)

    shared_cluster.eventually(renewed, "the first renews")
    assert (holder(), second.history) == ("first", [])
    first.cut_off = True
    shared_cluster.eventually(lambda: second.history, "the second leads")
    assert holder() == "second"
    first.thread.join()
    assert first.history == ["leads", "stopped"]
    second.cut_off = True
    second.thread.join()
    assert second.history == ["leads", "stopped"]
    leases.api_client.close()
    client.Configuration.set_default(None)
