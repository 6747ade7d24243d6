"""The pure parts of a stream's way through the API server."""

from __future__ import annotations

import json

import pytest

from apiserver.serve.params import options_from
from apiserver.serve.stream_command import Wanted, exit_status, final_status
from apiserver.serve.stream_websocket import CHANNEL_PROTOCOLS, choose_protocol
from apiserver.serve.streams import command_query, container_for
from podyard.api import codec, validation_pod
from podyard.api.errors import BadRequest
from podyard.api.types import Pod, core_v1


def pod(*names: str, inits: tuple[str, ...] = ()) -> Pod:
    return Pod(
        metadata={"name": "web", "annotations": {"kubectl.kubernetes.io/default-container": "b"}},
        spec={
            "containers": [{"name": name} for name in names],
            "initContainers": [{"name": name} for name in inits],
            "ephemeralContainers": [{"ephemeralContainerCommon": {"name": "debug"}}],
        },
    )


def test_the_container_is_named_or_the_only_one():
    assert container_for(pod("a"), "") == "a"
    assert container_for(pod("a", "b"), "b") == "b"
    assert container_for(pod("a", inits=("i",)), "i") == "i"
    assert container_for(pod("a"), "debug") == "debug"


def test_several_containers_must_be_chosen_from():
    """The annotation of a default container is for kubectl, not for the server."""
    text = "a container name must be specified for pod web, choose one of: [i a b debug]"
    with pytest.raises(BadRequest) as refused:
        container_for(pod("a", "b", inits=("i",)), "")
    assert refused.value.message == text
    with pytest.raises(BadRequest, match="container x is not valid for pod web"):
        container_for(pod("a"), "x")


def test_the_kubelets_query_has_what_was_asked_for():
    options = core_v1.PodExecOptions(command=["a", "b c"], stdin=True, stdout=True, tty=True)
    assert command_query(options) == [
        ("input", "1"),
        ("output", "1"),
        ("tty", "1"),
        ("command", "a"),
        ("command", "b c"),
    ]
    assert command_query(core_v1.PodAttachOptions(stderr=True)) == [("error", "1")]


def test_ports_of_a_query_are_numbers_parted_by_commas():
    def ports(*values: str) -> list[int]:
        query = {"ports": values[0]}
        return list(options_from(core_v1.PodPortForwardOptions, query, lambda _: list(values)).ports)

    assert ports("80,81", "9") == [80, 81, 9]
    for wrong in ("", "x", "80,", "99999999999"):
        with pytest.raises(BadRequest, match="ParseInt"):
            ports(wrong)


def test_a_time_of_a_query_is_read_as_go_reads_it():
    def since(text: str) -> tuple[int, int]:
        options = options_from(core_v1.PodLogOptions, {"sinceTime": text, "tailLines": "3"})
        assert (options.tailLines, options.HasField("sinceTime")) == (3, True)
        return options.sinceTime.seconds, options.sinceTime.nanos

    assert since("2026-01-02T03:04:05Z") == (1_767_323_045, 0)
    assert since("2026-01-02T04:04:05.5+01:00") == (1_767_323_045, 500_000_000)
    for none in ("", "null"):
        assert since(none) == (0, 0)
    with pytest.raises(BadRequest) as refused:
        since("yesterday")
    layout = "2006-01-02T15:04:05Z07:00"
    assert (
        refused.value.message == f'parsing time "yesterday" as "{layout}": cannot parse "yesterday" as "2006"'
    )


def test_every_option_of_a_log_is_heard():
    """A field of a type that queries are not read into would be dropped in silence."""
    given = {
        "container": "a",
        "follow": "true",
        "previous": "true",
        "sinceSeconds": "1",
        "sinceTime": "2026-01-02T03:04:05Z",
        "timestamps": "true",
        "tailLines": "1",
        "limitBytes": "1",
        "insecureSkipTLSVerifyBackend": "true",
        "stream": "Stdout",
    }
    options = options_from(core_v1.PodLogOptions, given)
    assert set(given) == {field.name for field in core_v1.PodLogOptions.DESCRIPTOR.fields}
    assert {field.name for field, _ in options.ListFields()} == set(given)


@pytest.mark.parametrize(
    ("asked", "refusals"),
    [
        ({"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}, []),
        ({"sinceTime": {"seconds": 5}}, []),
        ({"tailLines": -1}, ["tailLines: Invalid value: -1: must be greater than or equal to 0"]),
        ({"limitBytes": 0}, ["limitBytes: Invalid value: 0: must be greater than 0"]),
        ({"stream": "All"}, ["stream: Forbidden: may not be specified"]),
        ({"stream": ""}, ["stream: Forbidden: may not be specified"]),
        ({"sinceSeconds": 0}, ["sinceSeconds: Invalid value: 0: must be greater than 0"]),
        (
            {"sinceSeconds": 0, "sinceTime": {"seconds": 5}},
            [": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"],
        ),
    ],
)
def test_what_may_be_asked_of_a_log(asked, refusals):
    causes = validation_pod.log_options(core_v1.PodLogOptions(**asked))
    assert [f"{cause.field}: {cause.message}" for cause in causes] == refusals


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], ""),
        (["v5.channel.k8s.io", "v4.channel.k8s.io"], "v5.channel.k8s.io"),
        (["x", "base64.channel.k8s.io", "v4.channel.k8s.io"], "base64.channel.k8s.io"),
        (["v3.channel.k8s.io"], None),
    ],
)
def test_the_first_protocol_that_both_know(offered, chosen):
    assert choose_protocol(offered, CHANNEL_PROTOCOLS) == chosen


def test_without_an_offer_there_must_be_a_protocol_without_a_name():
    assert choose_protocol([], ["v4.channel.k8s.io"]) is None


def test_a_terminal_has_one_output():
    options = core_v1.PodExecOptions(stdout=True, stderr=True, tty=True)
    assert Wanted.of(options) == Wanted(stdin=False, stdout=True, stderr=False, tty=True)


def failure(**fields: object) -> bytes:
    return json.dumps({"metadata": {}, "status": "Failure", **fields}).encode()


def test_a_commands_end_is_told_as_upstream_tells_it():
    assert json.loads(codec.encode_json(exit_status(3), "", "")) == {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: command terminated with exit code 3",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    causes = {"causes": [{"reason": "Other", "message": "9"}, {"reason": "ExitCode", "message": "3"}]}
    assert final_status(failure(reason="NonZeroExitCode", details=causes)) == exit_status(3)
    assert final_status(b"").status == "Success"
    assert final_status(b'{"status":"Success"}').status == "Success"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (failure(message="no such file"), "no such file"),
        (b"plain text", "error stream protocol error: plain text"),
        (failure(reason="NonZeroExitCode"), "error stream protocol error"),
        (b"[1]", "error stream protocol error: [1]"),
    ],
)
def test_other_failures_are_internal_errors(raw, text):
    status = final_status(raw)
    assert (status.reason, status.code) == ("InternalError", 500)
    assert status.message.startswith(f"Internal error occurred: {text}")
