"""The decoder of pod-resources messages, compared with the classes that protoc generates."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.agent.kubernetes import podresources
from gpusteward.agent.kubernetes.podresources import DecodeError, ListPodResourcesResponse, decode
from tests.fakes import podresources_pb2 as generated
from tests.fakes.kubelet import device_claim, dra_claim, response

ROOT = Path(__file__).parents[3]

texts = st.text(max_size=8)
cdi_devices = st.builds(generated.CdiDevice, name=texts)
claim_resources = st.builds(
    generated.ClaimResource,
    cdi_devices=st.lists(cdi_devices, max_size=2),
    driver_name=texts,
    pool_name=texts,
    device_name=texts,
)
dynamic_resources = st.builds(
    generated.DynamicResource,
    claim_name=texts,
    claim_namespace=texts,
    claim_resources=st.lists(claim_resources, max_size=2),
)
devices = st.builds(generated.ContainerDevices, resource_name=texts, device_ids=st.lists(texts, max_size=3))
containers = st.builds(
    generated.ContainerResources,
    name=texts,
    devices=st.lists(devices, max_size=2),
    dynamic_resources=st.lists(dynamic_resources, max_size=2),
)
pods = st.builds(generated.PodResources, name=texts, namespace=texts, containers=st.lists(containers, max_size=2))
responses = st.builds(generated.ListPodResourcesResponse, pod_resources=st.lists(pods, max_size=3))


def as_dict(message: object) -> object:
    """Fields by name, of a generated message or of one of ours."""
    if isinstance(message, Message):
        return {field.name: as_dict(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}
    if hasattr(message, "__dataclass_fields__"):
        return {name: as_dict(getattr(message, name)) for name in message.__dataclass_fields__}
    return message if isinstance(message, str) else [as_dict(each) for each in message]


def test_every_field_is_the_generated_one():
    for name, descriptor in generated.DESCRIPTOR.message_types_by_name.items():
        if descriptor.fields:
            assert as_dict(getattr(podresources, name)()) == as_dict(getattr(generated, name)())


@given(responses)
def test_a_message_is_decoded_as_protobuf_does(message):
    assert as_dict(decode(message.SerializeToString(), ListPodResourcesResponse)) == as_dict(message)


CHANGES = st.lists(st.tuples(st.integers(0, 500), st.binary(max_size=3)), max_size=3)
SAMPLE = response(
    device_claim("team", "train-0", "main", "GPU-1", "GPU-2"), dra_claim("team", "b", "c", "gpu-0", cdi="x=y")
).SerializeToString()


@settings(max_examples=1000, deadline=None)
@given(CHANGES | st.binary(max_size=60))
def test_damaged_bytes_are_refused_or_decoded_as_protobuf_does(changes):
    data = changes if isinstance(changes, bytes) else damage(SAMPLE, changes)
    try:
        decoded = decode(data, ListPodResourcesResponse)
    except DecodeError:
        return
    assert as_dict(decoded) == as_dict(generated.ListPodResourcesResponse.FromString(data))


def damage(data: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    for position, replacement in changes:
        data = data[:position] + replacement + data[position + 1 :]
    return data


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        b"\x0a\x7f",
        b"\x0a\x04\x0a\x02\xff\xfe",
        b"\x02\x00",
        b"\x0f",
        b"\x08",
        b"\x09\x00",
        b"\x0d\x00",
        b"\x0a" + b"\xff" * 11,
    ],
    ids=["tag", "length", "utf-8", "field 0", "wire type", "varint", "fixed64", "fixed32", "endless"],
)
def test_what_protobuf_refuses_is_refused(data):
    with pytest.raises(ProtobufDecodeError):
        generated.ListPodResourcesResponse.FromString(data)
    with pytest.raises(DecodeError):
        decode(data, ListPodResourcesResponse)


def test_the_generated_messages_are_fresh(tmp_path):
    """Compared by what they describe: the text around it differs between compilers."""
    proto, stub = "tests/fakes/podresources.proto", "tests/fakes/podresources_pb2.pyi"
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, proto], check=True, timeout=60)
    made = ast.parse((tmp_path / stub).with_suffix(".py").read_text())
    descriptors = [
        node.value for node in ast.walk(made) if isinstance(node, ast.Constant) and type(node.value) is bytes
    ]
    assert descriptors == [generated.DESCRIPTOR.serialized_pb], "run the command in podresources.proto"
    assert ast.dump(ast.parse((ROOT / stub).read_text())) == ast.dump(ast.parse((tmp_path / stub).read_text()))
