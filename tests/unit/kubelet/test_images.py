"""Images: names, policies, back-off, one pull of an image at a time."""

from __future__ import annotations

import asyncio

import pytest

from kubelet.images import (
    ImagePuller,
    PullError,
    default_policy,
    go_duration,
    invalid_reference,
    must_pull,
    normalized,
)
from kubelet.runtime.base import RuntimeFailure
from kubelet.runtime.hollow import Delays, HollowRuntime, Stage
from podyard.base import clock


@pytest.mark.parametrize(
    ("image", "full", "policy"),
    [
        ("nginx", "docker.io/library/nginx:latest", "Always"),
        ("nginx:1.27", "docker.io/library/nginx:1.27", "IfNotPresent"),
        ("team/web", "docker.io/team/web:latest", "Always"),
        ("reg:5000/web:latest", "reg:5000/web:latest", "Always"),
        ("localhost/web", "localhost/web:latest", "Always"),
        ("nginx@sha256:" + "0" * 64, "docker.io/library/nginx@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
def test_a_short_name_means_a_full_reference_and_a_policy(image, full, policy):
    assert normalized(image) == full
    assert default_policy(image) == policy
    assert invalid_reference(image) is None


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("Nginx", "invalid reference format: repository name (library/Nginx) must be lowercase"),
        (":sha-1", "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("no such", "invalid reference format"),
        ("https://reg/web", "invalid reference format"),
    ],
)
def test_what_is_no_image_name_is_said_in_the_usual_words(image, problem):
    assert invalid_reference(image) == problem


@pytest.mark.parametrize(
    ("policy", "present", "pull"),
    [
        ("Always", True, True),
        ("Always", False, True),
        ("IfNotPresent", True, False),
        ("IfNotPresent", False, True),
        ("Never", True, False),
        ("Never", False, False),
    ],
)
def test_the_policy_decides_whether_to_pull(policy, present, pull):
    assert must_pull(policy, present=present) is pull


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.345, "345ms"), (1.2044, "1.204s"), (62.5, "1m2.5s"), (60, "1m0s")]
)
def test_durations_read_as_in_upstreams_events(seconds, text):
    assert go_duration(seconds) == text


class Said:
    """Collects announcements."""

    def __init__(self):
        self.all: list[tuple[str, str, str]] = []

    def __call__(self, type_, reason, message):
        self.all.append((type_, reason, message))

    @property
    def reasons(self):
        return [reason for _, reason, _ in self.all]


async def refused(puller, said, image="web", policy="Always"):
    with pytest.raises(PullError) as caught:
        await puller.ensure("u1", image, policy, said)
    return caught.value


@pytest.mark.virtual
async def test_a_failed_pull_waits_ten_seconds_then_twenty_up_to_five_minutes():
    runtime = HollowRuntime({"web": Stage(pull_error="gone")}, Delays(pull_s=0.0))
    puller, said = ImagePuller(runtime), Said()
    waits = []
    for _ in range(7):
        began_s = clock.now_s()
        error = await refused(puller, said)
        assert error.reason == "ErrImagePull"
        assert error.retry_at_s == pytest.approx(began_s + 1)
        again = await refused(puller, said)
        waits.append(round(again.retry_at_s - began_s))
        assert again.reason == "ImagePullBackOff"
        assert (
            again.message
            == 'Back-off pulling image "web": ErrImagePull: rpc error: code = NotFound desc = gone'
        )
        await clock.sleep(again.retry_at_s - clock.now_s())
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    assert said.all[:5] == [
        ("Normal", "Pulling", 'Pulling image "web"'),
        ("Warning", "Failed", 'Failed to pull image "web": rpc error: code = NotFound desc = gone'),
        ("Warning", "Failed", "Error: ErrImagePull"),
        ("Normal", "BackOff", 'Back-off pulling image "web"'),
        ("Warning", "Failed", "Error: ImagePullBackOff"),
    ]


@pytest.mark.virtual
async def test_never_means_look_again_later_not_at_once():
    puller, said = ImagePuller(HollowRuntime()), Said()
    error = await refused(puller, said, policy="Never")
    assert error.reason == "ErrImageNeverPull"
    assert error.retry_at_s == pytest.approx(clock.now_s() + 10)
    assert said.reasons == ["ErrImageNeverPull", "Failed"]


@pytest.mark.virtual
async def test_a_bad_name_never_reaches_the_runtime():
    puller, said = ImagePuller(HollowRuntime()), Said()
    error = await refused(puller, said, image="Web")
    assert error.reason == "InvalidImageName"
    assert said.reasons == ["InspectFailed", "Failed"]


class Counting(HollowRuntime):
    """Counts how many pulls of one image run at once."""

    running = 0
    most = 0

    async def pull(self, reference):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await super().pull(reference)
        finally:
            self.running -= 1


@pytest.mark.virtual
async def test_one_image_is_pulled_by_one_at_a_time_whoever_comes_and_goes():
    runtime = Counting(delays=Delays(pull_s=1.0))
    puller = ImagePuller(runtime)

    async def late(after_s):
        await clock.sleep(after_s)
        await puller.ensure(f"u{after_s}", "web", "Always", Said())

    async with asyncio.TaskGroup() as group:
        # The third comes when the first has just ended and the second is about to begin.
        for after_s in (0.0, 0.1, 1.0, 1.05, 2.0):
            group.create_task(late(after_s))
        given_up = group.create_task(late(0.2))
        await clock.sleep(0.5)
        given_up.cancel()
    assert runtime.most == 1
    assert puller._pulls == {}


@pytest.mark.virtual
async def test_a_pull_whose_size_cannot_be_asked_has_still_succeeded():
    class Forgetful(HollowRuntime):
        asked = 0

        async def image(self, reference):
            self.asked += 1
            if self.asked > 1:
                raise RuntimeFailure("away", "UNAVAILABLE")

    said = Said()
    await ImagePuller(Forgetful()).ensure("u1", "web", "Always", said)
    assert said.reasons == ["Pulling", "Pulled"]


@pytest.mark.virtual
async def test_what_is_known_of_a_pod_goes_with_it():
    puller = ImagePuller(HollowRuntime({"web": Stage(pull_error="gone")}))
    await refused(puller, Said())
    puller.forget("u1")
    assert puller._failures == {}
