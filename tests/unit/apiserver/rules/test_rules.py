"""What the server does to objects on their way in: strategies, deletion, binding."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.rules import deletion, metadata, pods, services, strategy
from apiserver.rules.deletion import DeleteOutcome
from podyard.api import codec, errors, resources
from podyard.api.resources import RESOURCES
from podyard.api.types import (
    Binding,
    ConfigMap,
    EndpointSlice,
    Namespace,
    Pod,
    Service,
    copy_of,
    meta_v1,
)
from tests.unit.apiserver.rules.objects import NOW_S, made, pod


def test_strategies_are_of_served_kinds() -> None:
    served = {row.message for row in RESOURCES}
    assert set(strategy.STRATEGIES) <= served
    for row in RESOURCES:
        parts = row.subresources.items()
        # A scale is another kind, with a front of its own.
        updating = {name for name, part in parts if "update" in part.verbs and part.kind == row.kind}
        assert set(strategy.strategy_of(row).parts) == updating


class TestPods:
    def test_create_sets_status_and_generation(self) -> None:
        new = pod()
        new.status.phase = "Running"
        pods.prepare_create(new)
        assert codec.to_dict(new.status) == {"phase": "Pending", "qosClass": "BestEffort"}
        assert new.metadata.generation == 1

    def test_gated_pods_say_so(self) -> None:
        new = pod(schedulingGates=[{"name": "g"}])
        pods.prepare_create(new)
        assert new.status.conditions[0].reason == "SchedulingGated"

    def test_match_label_keys_become_terms(self) -> None:
        spread = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
            "matchLabelKeys": ["hash", "missing"],
        }
        new = pod(topologySpreadConstraints=[spread])
        new.metadata.labels["hash"] = "1"
        pods.prepare_create(new)
        terms = new.spec.topologySpreadConstraints[0].labelSelector.matchExpressions
        assert [(term.key, term.operator, list(term.values)) for term in terms] == [("hash", "In", ["1"])]

    def test_update_keeps_status_and_counts_spec_changes(self) -> None:
        row, old = resources.by_message(Pod), pod()
        old.metadata.generation, old.status.phase = 3, "Running"
        new = copy_of(old)
        new.status.phase = "Failed"
        new.metadata.labels["a"] = "b"
        strategy.prepare_update(row, new, old, NOW_S)
        assert (new.status.phase, new.metadata.generation) == ("Running", 3)
        new.spec.containers[0].image = "other"
        strategy.prepare_update(row, new, old, NOW_S)
        assert new.metadata.generation == 4

    def test_zero_values_that_go_clients_write_are_no_change(self) -> None:
        row, old = resources.by_message(Pod), pod()
        old.metadata.generation = 1
        new = copy_of(old)
        new.spec.nodeName, new.spec.hostNetwork = "", False
        strategy.prepare_update(row, new, old, NOW_S)
        assert new.metadata.generation == 1
        assert strategy.validate_update(row, new, old) == list(strategy.validate_update(row, old, old))

    def test_status_update_keeps_spec_and_owners(self) -> None:
        row, old = resources.by_message(Pod), pod(nodeName="n")
        old.status.qosClass = "BestEffort"
        new = copy_of(old)
        new.spec.nodeName, new.status.phase = "other", "Running"
        new.status.qosClass = ""
        new.metadata.ownerReferences.add(name="x")
        strategy.prepare_update(row, new, old, NOW_S, "status")
        assert (new.spec.nodeName, new.status.phase, new.status.qosClass) == ("n", "Running", "BestEffort")
        assert not new.metadata.ownerReferences

    @pytest.mark.parametrize(
        ("node", "phase", "asked_s", "grace_s"),
        [
            ("n", "Running", None, 30),
            ("n", "Running", 5, 5),
            ("n", "Running", 0, 0),
            ("n", "Running", -1, 1),
            ("", "Pending", None, 0),
            ("n", "Succeeded", 10, 0),
        ],
    )
    def test_first_delete(self, node: str, phase: str, asked_s: int | None, grace_s: int) -> None:
        obj = pod(nodeName=node)
        obj.status.phase, obj.metadata.generation = phase, 1
        options = meta_v1.DeleteOptions()
        if asked_s is not None:
            options.gracePeriodSeconds = asked_s
        assert pods.delete(obj, options, NOW_S) is DeleteOutcome.GRACEFUL
        assert obj.metadata.deletionGracePeriodSeconds == grace_s
        assert obj.metadata.deletionTimestamp.seconds == 1_000_000 + grace_s
        assert obj.metadata.generation == 2

    @pytest.mark.parametrize(
        ("asked_s", "outcome", "grace_s"),
        [
            (None, DeleteOutcome.PENDING, 30),
            (30, DeleteOutcome.PENDING, 30),
            (60, DeleteOutcome.PENDING, 30),
            (5, DeleteOutcome.GRACEFUL, 5),
            (0, DeleteOutcome.GRACEFUL, 0),
        ],
    )
    def test_second_delete_only_shortens(
        self, asked_s: int | None, outcome: DeleteOutcome, grace_s: int
    ) -> None:
        obj = pod(nodeName="n")
        pods.delete(obj, meta_v1.DeleteOptions(), NOW_S)
        options = meta_v1.DeleteOptions()
        if asked_s is not None:
            options.gracePeriodSeconds = asked_s
        assert pods.delete(obj, options, NOW_S + 10) is outcome
        assert obj.metadata.deletionGracePeriodSeconds == grace_s
        assert obj.metadata.deletionTimestamp.seconds == 1_000_000 + grace_s

    def test_a_delete_that_was_cut_off_goes_on(self) -> None:
        obj = pod()
        pods.delete(obj, meta_v1.DeleteOptions(), NOW_S)
        assert pods.delete(obj, meta_v1.DeleteOptions(), NOW_S) is DeleteOutcome.NOW


class TestBinding:
    def binding(self, **value: Any) -> Binding:
        return codec.from_dict({"target": {"kind": "Node", "name": "n"}, **value}, Binding)

    def test_binds(self) -> None:
        obj = pod()
        obj.status.nominatedNodeName = "m"
        pods.bind(obj, self.binding(metadata={"annotations": {"a": "b"}}), NOW_S)
        assert (obj.spec.nodeName, obj.metadata.annotations["a"], obj.status.nominatedNodeName) == (
            "n",
            "b",
            "",
        )
        condition = obj.status.conditions[0]
        assert (condition.type, condition.status, condition.lastTransitionTime.seconds) == (
            "PodScheduled",
            "True",
            1_000_000,
        )

    @pytest.mark.parametrize(
        ("change", "binding", "text"),
        [
            ({"nodeName": "m"}, {}, 'pod a is already assigned to node "m"'),
            ({"schedulingGates": [{"name": "g"}]}, {}, "pod a has non-empty .spec.schedulingGates"),
            (
                {},
                {"metadata": {"uid": "x"}},
                "Precondition failed: UID in precondition: x, UID in object meta: u",
            ),
        ],
    )
    def test_conflicts(self, change: dict[str, Any], binding: dict[str, Any], text: str) -> None:
        obj = pod(**change)
        obj.metadata.uid = "u"
        with pytest.raises(errors.Conflict) as caught:
            pods.bind(obj, self.binding(**binding), NOW_S)
        assert caught.value.message == f'Operation cannot be fulfilled on pods/binding "a": {text}'

    def test_a_pod_that_goes_is_not_bound(self) -> None:
        obj = pod(nodeName="n")
        pods.delete(obj, meta_v1.DeleteOptions(), NOW_S)
        obj.spec.nodeName = ""
        with pytest.raises(errors.Conflict, match="is being deleted, cannot be assigned to a host"):
            pods.bind(obj, self.binding(), NOW_S)

    def test_a_binding_without_node(self) -> None:
        with pytest.raises(errors.ApiError, match=r"target\.name: Required value") as caught:
            pods.bind(pod(), Binding(), NOW_S)
        assert caught.value.code == 500


class TestOthers:
    def test_namespaces_wait_for_their_finalizer(self) -> None:
        row = resources.by_message(Namespace)
        obj = made(Namespace)
        strategy.prepare_create(row, obj, NOW_S)
        assert list(obj.spec.finalizers) == ["kubernetes"]
        kind = strategy.strategy_of(row)
        assert kind.delete(obj, meta_v1.DeleteOptions(), NOW_S) is DeleteOutcome.GRACEFUL
        assert (obj.status.phase, kind.delete_on_update(obj, obj)) == ("Terminating", False)
        assert kind.delete(obj, meta_v1.DeleteOptions(), NOW_S) is DeleteOutcome.PENDING
        done = copy_of(obj)
        del done.spec.finalizers[:]
        strategy.prepare_update(row, done, obj, NOW_S, "finalize")
        assert strategy.validate_update(row, done, obj, "finalize") == []
        assert kind.delete_on_update(done, obj)
        assert kind.delete(done, meta_v1.DeleteOptions(), NOW_S) is DeleteOutcome.NOW

    def test_plain_updates_leave_finalizers_and_status(self) -> None:
        row, old = resources.by_message(Namespace), made(Namespace)
        strategy.prepare_create(row, old, NOW_S)
        new = copy_of(old)
        del new.spec.finalizers[:]
        new.status.phase = "Terminating"
        strategy.prepare_update(row, new, old, NOW_S)
        assert (list(new.spec.finalizers), new.status.phase) == (["kubernetes"], "Active")

    def test_namespace_phase_follows_deletion(self) -> None:
        row, old = resources.by_message(Namespace), made(Namespace)
        new = copy_of(old)
        new.status.phase = "Terminating"
        causes = strategy.validate_update(row, new, old, "status")
        assert [cause.field for cause in causes] == ["status.Phase"]

    def test_endpoint_slices_count_all_but_metadata(self) -> None:
        row, old = resources.by_message(EndpointSlice), made(EndpointSlice, addressType="IPv4")
        strategy.prepare_create(row, old, NOW_S)
        new = copy_of(old)
        new.metadata.annotations["a"] = "b"
        strategy.prepare_update(row, new, old, NOW_S)
        assert new.metadata.generation == 1
        new.metadata.labels["a"] = "b"
        strategy.prepare_update(row, new, old, NOW_S)
        assert new.metadata.generation == 2

    def test_finalizers_hold_an_object(self) -> None:
        old = made(ConfigMap, metadata={"name": "a", "finalizers": ["x/y"]})
        assert deletion.mark_for_finalizers(old.metadata, NOW_S)
        assert not deletion.mark_for_finalizers(old.metadata, NOW_S)
        new = copy_of(old)
        assert not deletion.should_delete_on_update(new, old)
        del new.metadata.finalizers[:]
        assert deletion.should_delete_on_update(new, old)

    def test_metadata_that_clients_leave_out_is_kept(self) -> None:
        old = made(
            ConfigMap, metadata={"name": "a", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z"}
        ).metadata
        old.deletionTimestamp.seconds, old.deletionGracePeriodSeconds = 5, 30
        new = made(ConfigMap, metadata={"name": "a", "generation": 9}).metadata
        metadata.carry_over(new, old)
        assert (new.uid, new.creationTimestamp, new.deletionTimestamp.seconds) == (
            "u",
            old.creationTimestamp,
            5,
        )
        assert (new.deletionGracePeriodSeconds, new.generation) == (30, 0)


class TestServices:
    def service(self, **spec: Any) -> Service:
        spec.setdefault("ports", [{"port": 80}])
        result: Service = made(Service, spec=spec)
        return result

    def test_families(self) -> None:
        obj = self.service(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"])
        assert services.settle_families(obj, None) == []
        assert (list(obj.spec.ipFamilies), obj.spec.ipFamilyPolicy) == (["IPv4"], "SingleStack")
        external = self.service(type="ExternalName")
        assert services.settle_families(external, None) == []
        assert not external.spec.ipFamilies

    @pytest.mark.parametrize(
        ("spec", "families", "policy"),
        [
            ({}, ["IPv4"], "SingleStack"),
            ({"ipFamilyPolicy": "PreferDualStack"}, ["IPv4"], "PreferDualStack"),
            ({"clusterIP": "None", "selector": {"a": "b"}}, ["IPv4"], "SingleStack"),
            ({"clusterIP": "None"}, ["IPv4", "IPv6"], "RequireDualStack"),
            ({"clusterIP": "None", "ipFamilies": ["IPv6"]}, ["IPv6", "IPv4"], "RequireDualStack"),
            ({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}, ["IPv4"], "SingleStack"),
        ],
    )
    def test_families_are_filled_in(self, spec: dict[str, Any], families: list[str], policy: str) -> None:
        if "clusterIP" in spec:
            spec["clusterIPs"] = [spec["clusterIP"]]
        obj = self.service(**spec)
        assert services.settle_families(obj, None) == []
        assert (list(obj.spec.ipFamilies), obj.spec.ipFamilyPolicy) == (families, policy)

    @pytest.mark.parametrize(
        ("spec", "field", "detail"),
        [
            (
                {"ipFamilyPolicy": "RequireDualStack"},
                "spec.ipFamilyPolicy",
                'Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services',
            ),
            (
                {"ipFamilies": ["IPv6"]},
                "spec.ipFamilies[0]",
                'Invalid value: "IPv6": not configured on this cluster',
            ),
            (
                {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
                "spec.ipFamilies[1]",
                'Invalid value: "IPv6": not configured on this cluster',
            ),
            (
                {"ipFamilies": ["IPv4", "IPv6"]},
                "spec.ipFamilyPolicy",
                "Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when "
                "multiple IP families are specified",
            ),
            (
                {"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]},
                "spec.clusterIPs[0]",
                'Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster',
            ),
            (
                {"ipFamilies": ["IPv7"]},
                "spec.ipFamilies[0]",
                'Unsupported value: "IPv7": supported values: "IPv4", "IPv6"',
            ),
        ],
    )
    def test_families_that_the_cluster_does_not_have(
        self, spec: dict[str, Any], field: str, detail: str
    ) -> None:
        causes = services.settle_families(self.service(**spec), None)
        assert [(cause.field, cause.message) for cause in causes] == [(field, detail)]

    def test_a_second_family_goes_with_the_policy(self) -> None:
        old = self.service(clusterIP="None", clusterIPs=["None"])
        assert services.settle_families(old, None) == []
        new = copy_of(old)
        new.spec.ipFamilyPolicy = "SingleStack"
        assert services.settle_families(new, old) == []
        assert list(new.spec.ipFamilies) == ["IPv4"]
        less = copy_of(old)
        del less.spec.ipFamilies[1:]
        [cause] = services.settle_families(less, old)
        assert cause.message.endswith("must be 'SingleStack' to release the secondary IP family")

    def test_an_update_keeps_its_address(self) -> None:
        old = self.service(clusterIP="10.96.0.7")
        new = self.service()
        services.prepare_update(new, old)
        assert (new.spec.clusterIP, list(new.spec.clusterIPs)) == ("10.96.0.7", ["10.96.0.7"])

    def test_both_address_fields_follow_the_older_one(self) -> None:
        old = self.service(clusterIP="10.96.0.7")
        new = copy_of(old)
        new.spec.clusterIP = "10.96.0.8"
        services.prepare_update(new, old)
        assert list(new.spec.clusterIPs) == ["10.96.0.8"]
        new.spec.clusterIP = ""
        new.spec.clusterIPs[0] = "10.96.0.7"
        services.prepare_update(new, old)
        assert (new.spec.clusterIP, list(new.spec.clusterIPs)) == ("10.96.0.7", ["10.96.0.7"])

    def test_node_ports_stay_and_go_with_the_type(self) -> None:
        old = self.service(type="NodePort", ports=[{"port": 80, "nodePort": 30080}])
        new = self.service(type="NodePort")
        services.prepare_update(new, old)
        assert new.spec.ports[0].nodePort == 30080
        plain = self.service(type="ClusterIP", ports=[{"port": 80, "nodePort": 30080}])
        services.prepare_update(plain, old)
        assert plain.spec.ports[0].nodePort == 0

    def test_addresses_are_given_once_until_the_range_is_full(self) -> None:
        taken: set[str] = set()
        for start in range(14):
            obj = self.service()
            assert services.assign_cluster_ip(obj, "10.0.0.0/28", taken, start * 7)
            assert obj.spec.clusterIP not in taken
            taken.add(obj.spec.clusterIP)
        assert taken == {f"10.0.0.{i}" for i in range(1, 15)}
        assert not services.assign_cluster_ip(self.service(), "10.0.0.0/28", taken, 0)

    @pytest.mark.parametrize(
        "spec", [{"clusterIP": "None"}, {"type": "ExternalName"}, {"clusterIP": "10.0.0.9"}]
    )
    def test_who_needs_none_gets_none(self, spec: dict[str, Any]) -> None:
        obj = self.service(**spec)
        before = obj.spec.clusterIP
        assert services.assign_cluster_ip(obj, "10.0.0.0/28", set(), 0)
        assert obj.spec.clusterIP == before
