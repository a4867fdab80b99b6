"""The kubelet client: real gRPC over a unix socket, and its faults."""

import threading

import pytest

from gpusteward.agent.kubernetes.kubelet import MESSAGE_LIMIT_BYTES, Claim, KubeletClient, accept_names, decode_listing
from gpusteward.core.errors import SourceError
from tests.fakes import podresources_pb2 as wire
from tests.fakes.kubelet import FakeKubelet, Fault, device_claim, dra_claim, response
from tests.fakes.unprivileged_user import as_unprivileged_user

TRAINER = device_claim("team", "train-0", "main", "GPU-1")
TRAINERS_CLAIM = Claim("team", "train-0", "main", "nvidia.com/gpu", "GPU-1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kubelet.sock"


@pytest.fixture
def kubelet_client(path):
    resources = KubeletClient(path, ["volcano.sh/vgpu-number", "example.com/slice-*"], timeout_seconds=10)
    yield resources
    resources.close()


def test_a_device_is_listed_with_its_container(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER, device_claim("web", "api", "infer", "GPU-2::0", "GPU-2::1"))):
        assert kubelet_client.read().claims == (
            TRAINERS_CLAIM,
            Claim("web", "api", "infer", "nvidia.com/gpu", "GPU-2::0"),
            Claim("web", "api", "infer", "nvidia.com/gpu", "GPU-2::1"),
        )


def test_pods_without_devices_are_listed_too(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER, wire.PodResources(namespace="web", name="proxy"))):
        listing = kubelet_client.read()
    assert listing.pods == {("team", "train-0"), ("web", "proxy")}
    assert listing.claims == (TRAINERS_CLAIM,)


@pytest.mark.parametrize(
    ("resource", "accepted"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/mig-1g.10gb.shared", True),
        ("volcano.sh/vgpu-number", True),
        ("example.com/slice-3", True),
        ("nvidia.com/gpumem", False),
        ("volcano.sh/vgpu-number2", False),
        ("amd.com/gpu", False),
        ("rdma/hca", False),
        ("", False),
    ],
)
def test_only_gpu_resources_and_configured_ones_are_listed(resource, accepted):
    accepts = accept_names(["volcano.sh/vgpu-number", " example.com/slice-* ", ""])
    claims = decode_listing(response(device_claim("team", "pod", "main", "id", resource=resource)), accepts).claims
    assert [claim.resource for claim in claims] == [resource] * accepted


def test_a_dra_claim_has_its_device_name_and_labels():
    pod = dra_claim(
        "team", "train", "main", "gpu-0", cdi="k8s.gpu.nvidia.com/claim=dab5ab50-d59a-42a6-af16-cfd4628c0f7a-gpu-0"
    )
    (claim,) = decode_listing(response(pod), accept_names(())).claims
    assert (claim.resource, claim.device_id) == ("gpu.nvidia.com", "gpu-0")
    assert dict(claim.dra) == {
        "dra_claim_name": "train-gpu",
        "dra_claim_namespace": "team",
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": "node-1",
        "dra_device_name": "gpu-0",
    }


@pytest.mark.parametrize(
    "uuid", ["GPU-8b2281de-6d3c-22ed-0ec8-d3b864870b8b", "MIG-8b2281de-6d3c-22ed-0ec8-d3b864870b8b"]
)
def test_a_uuid_in_a_cdi_name_takes_precedence_over_the_device_name(uuid):
    pod = dra_claim("team", "train", "main", "gpu-0", cdi=f"nvidia.com/gpu={uuid}")
    assert decode_listing(response(pod), accept_names(())).claims[0].device_id == uuid


@pytest.mark.parametrize(
    ("device", "driver"),
    [("gpu-vfio-0", "gpu.nvidia.com"), ("channel-0", "compute-domain.nvidia.com"), ("", "gpu.nvidia.com")],
)
def test_a_dra_device_that_is_not_visible_to_nvml_is_skipped(device, driver):
    assert (
        decode_listing(response(dra_claim("team", "vm", "main", device, driver=driver)), accept_names(())).claims == ()
    )


def test_entries_without_a_name_and_duplicates_are_skipped():
    nameless = [
        device_claim("", "pod", "main", "GPU-1"),
        device_claim("team", "", "main", "GPU-1"),
        device_claim("team", "pod", "", "GPU-1"),
    ]
    listed = response(*nameless, device_claim("team", "pod", "main", ""), TRAINER, TRAINER)
    assert decode_listing(listed, accept_names(())).claims == (TRAINERS_CLAIM,)


def encode(number: int, content: bytes | str) -> bytes:
    """One length-delimited field, by hand."""
    content = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def test_the_field_numbers_match_the_kubelets(path, kubelet_client):
    """Written down from k8s.io/kubelet's v1 api.proto, with the fields we skip: CPUs, memory, NUMA topology."""
    device = encode(1, "nvidia.com/gpu") + encode(2, "GPU-1") + encode(3, encode(1, b"\x08\x01"))
    resource = encode(1, encode(1, "cdi")) + encode(2, "gpu.nvidia.com") + encode(3, "node-1") + encode(4, "gpu-3")
    claim = encode(2, "mine") + encode(3, "team") + encode(4, resource + encode(5, "share"))
    memory = encode(4, encode(1, "memory") + b"\x10\x07")
    container = encode(1, "main") + encode(2, device) + encode(3, b"\x01\x02") + memory + encode(5, claim)
    pod = encode(1, "train-0") + encode(2, "team") + encode(3, container) + encode(4, b"\x01") + encode(5, b"")
    with FakeKubelet(path, encode(1, pod)):
        plain, dynamic = kubelet_client.read().claims
    assert plain == TRAINERS_CLAIM
    assert dynamic.device_id == "gpu-3"
    assert dict(dynamic.dra).items() >= {"dra_claim_name": "mine", "dra_pool_name": "node-1"}.items()


def test_one_connection_serves_every_read(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)) as kubelet:
        assert [kubelet_client.read().claims for _ in range(5)] == [(TRAINERS_CLAIM,)] * 5
        assert (kubelet.requests, len(kubelet.connections)) == (5, 1)


def test_a_restarted_kubelet_is_queried_without_a_failure(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)):
        kubelet_client.read()
    with FakeKubelet(path, response()):
        assert kubelet_client.read().claims == ()


def test_a_stopped_kubelet_is_reported_and_found_again(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)):
        kubelet_client.read()
    with pytest.raises(SourceError, match=r"does not exist: mount its directory .* --pod-resources-kubelet-socket"):
        kubelet_client.read()
    with FakeKubelet(path, response(TRAINER)):
        assert kubelet_client.read().claims == (TRAINERS_CLAIM,)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault.CLOSES, "closed during the request"),
        (Fault.RESETS, "closed during the request"),
        (Fault.REFUSES, "RESOURCE_EXHAUSTED rejected by rate limit"),
        (Fault.NO_V1, "Kubernetes 1.20 or newer"),
        (Fault.HTTP1_ONLY, "not a gRPC server"),
    ],
)
def test_a_fault_is_explained_with_advice(path, kubelet_client, fault, text):
    with FakeKubelet(path, fault=fault):
        for _ in range(2):
            with pytest.raises(SourceError, match=text) as failure:
                kubelet_client.read()
            assert str(path) in str(failure.value)


@pytest.mark.parametrize("fault", [Fault.HANGS, Fault.SENDS_NOTHING])
def test_a_hanging_kubelet_costs_only_the_timeout(path, fault):
    resources = KubeletClient(path, timeout_seconds=0.05)
    with (
        FakeKubelet(path, response(TRAINER), fault=fault),
        pytest.raises(SourceError, match=r"did not respond within 0\.05 s"),
    ):
        resources.read()
    resources.close()


def test_a_hanging_kubelet_is_queried_after_growing_delays(path):
    now = 0.0
    resources = KubeletClient(path, timeout_seconds=0.4, clock=lambda: now)
    with FakeKubelet(path, response(TRAINER), fault=Fault.HANGS) as kubelet:
        queried = []
        for now in range(0, 120, 5):
            before = kubelet.requests
            with pytest.raises(SourceError, match="did not respond"):
                resources.read()
            if kubelet.requests > before:
                queried.append(now)
        assert queried == [0, 5, 15, 35, 65, 95]
        kubelet.fault = Fault.NONE
        now = 125
        assert resources.read().claims == (TRAINERS_CLAIM,)
        kubelet.fault = Fault.HANGS
        for seconds in (126, 131):
            now = seconds
            with pytest.raises(SourceError, match="did not respond"):
                resources.read()
        assert kubelet.requests == len(queried) + 3, "the delays begin anew"
    resources.close()


def test_after_a_fault_the_next_read_succeeds(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)) as kubelet:
        for fault in (Fault.CLOSES, Fault.RESETS, Fault.REFUSES):
            kubelet.fault = fault
            with pytest.raises(SourceError):
                kubelet_client.read()
            kubelet.fault = Fault.NONE
            assert kubelet_client.read().claims == (TRAINERS_CLAIM,)


@pytest.mark.parametrize(
    "nonsense", [b"\xff\xff\xff", b"\x0a\x7f", b"\x0a\x04\x0a\x02\xff\xfe"], ids=["tag", "length", "utf-8"]
)
def test_a_malformed_response_is_reported(path, kubelet_client, nonsense):
    with FakeKubelet(path, nonsense), pytest.raises(SourceError, match="not pod-resources v1"):
        kubelet_client.read()


def test_fields_of_wrong_types_are_skipped(path, kubelet_client):
    with FakeKubelet(path, b"\x08\x01" + b"\x0a\x02\x08\x07" + response(TRAINER).SerializeToString()):
        assert kubelet_client.read().claims == (TRAINERS_CLAIM,)


def test_a_response_of_three_mebibytes_is_read(path, kubelet_client):
    ids = [f"GPU-{number:060d}" for number in range(50_000)]
    with FakeKubelet(path, response(device_claim("team", "train-0", "main", *ids))) as kubelet:
        assert 3 * 2**20 < kubelet.response.ByteSize() < MESSAGE_LIMIT_BYTES
        assert len(kubelet_client.read().claims) == len(ids)


def test_a_response_over_the_limit_is_refused_and_the_next_one_is_read(path, kubelet_client):
    with FakeKubelet(path, bytes(MESSAGE_LIMIT_BYTES + 1)) as kubelet:
        with pytest.raises(SourceError, match="4194305 bytes, more than the limit of 4 MiB"):
            kubelet_client.read()
        kubelet.response = response(TRAINER)
        assert kubelet_client.read().claims == (TRAINERS_CLAIM,)


def test_a_socket_without_permission_is_reported(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)):
        path.chmod(0)
        with as_unprivileged_user(), pytest.raises(SourceError, match="lack of permission: run as root"):
            kubelet_client.read()


def test_a_path_that_is_not_a_socket_is_reported(path, kubelet_client):
    path.write_text("")
    with pytest.raises(SourceError, match="refuses connections"):
        kubelet_client.read()


@pytest.mark.parametrize("name", ["x" * 200, "a\0b"])
def test_a_path_that_cannot_be_a_socket_is_reported(tmp_path, name):
    resources = KubeletClient(tmp_path / name)
    with pytest.raises(SourceError):
        resources.read()
    resources.close()


def test_a_closed_client_reports_that_and_can_be_closed_twice(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)):
        kubelet_client.read()
        kubelet_client.close()
        kubelet_client.close()
        with pytest.raises(SourceError, match="kubelet is closed"):
            kubelet_client.read()


def test_it_can_be_read_from_one_thread_and_closed_from_another(path, kubelet_client):
    with FakeKubelet(path, response(TRAINER)):
        seen: list[tuple[Claim, ...]] = []
        reader = threading.Thread(target=lambda: seen.append(kubelet_client.read().claims))
        reader.start()
        reader.join(10)
        kubelet_client.close()
    assert seen == [(TRAINERS_CLAIM,)]
