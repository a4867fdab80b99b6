"""Flags, environment and defaults of the agent."""

import dataclasses
import re
from pathlib import Path

import pytest

from gpusteward import __version__
from gpusteward.agent.settings.flags import FlagGroup
from gpusteward.agent.settings.table import SETTINGS, AgentSettings, read_settings
from gpusteward.agent.settings.values import ConfigMapName
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import ListenAddress


def read(*arguments: str, **environ: str) -> AgentSettings:
    return read_settings(arguments, environ)


def test_without_flags_and_variables_every_setting_has_its_default() -> None:
    assert read() == AgentSettings()
    assert read().address == ListenAddress("", 9400)
    assert read().dialects == ("dcgm", "vgpu-monitor", "pid2pod", "native")
    assert read().kubernetes is None


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    environ = {"GPUSTEWARD_INTERVAL": "7", "DCGM_EXPORTER_INTERVAL": "9000"}
    assert read("--interval", "2.5", **environ).interval_seconds == 2.5
    assert read("-c", "30000", **environ).interval_seconds == 30
    assert read(**environ).interval_seconds == 7
    assert read(DCGM_EXPORTER_INTERVAL="9000").interval_seconds == 9


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", ("", 9400)),
        (":9401", ("", 9401)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9400", ("::1", 9400)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_may_be_written_as_port_host_and_port_or_ipv6(text: str, address: tuple[str, int]) -> None:
    assert read("-a", text).address == address
    assert read(DCGM_EXPORTER_LISTEN=text).address == address


def test_the_arguments_of_a_dcgm_exporter_work_unchanged() -> None:
    settings = read("-f", "/etc/x.csv", "-a", ":9500", "-c", "15000", "-k", "-d", "g:0,1", "-m", "gpu:fields", "-n")
    assert settings.collectors == Path("/etc/x.csv")
    assert settings.interval_seconds == 15
    assert settings.kubernetes is True
    assert settings.devices == "g:0,1"
    assert settings.configmap_data == ConfigMapName("gpu", "fields")
    assert settings.no_hostname is True
    assert settings.ignored == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k"], True),
        (["--kubernetes"], True),
        (["-k=true"], True),
        (["-k", "true"], True),
        (["-kubernetes=false"], False),
        (["--kubernetes=false"], False),
        (["--k=0"], False),
        (["-k", "--debug"], True),
    ],
)
def test_switches_are_parsed_as_in_go_programs(arguments: list[str], expected: bool) -> None:
    assert read(*arguments).kubernetes is expected


def test_one_dash_before_a_long_flag_is_enough_as_in_go() -> None:
    assert read("-collectors=/x.csv", "-web-read-timeout", "3s").web_read_timeout_seconds == 3


@pytest.mark.parametrize("text", ["true", "1", "yes", "True"])
def test_a_variable_accepts_several_words_for_true(text: str) -> None:
    assert read(DCGM_EXPORTER_KUBERNETES=text).kubernetes is True


def test_lists_may_be_repeated_or_separated_by_commas() -> None:
    settings = read("--nvidia-resource-names", "a/gpu,b/gpu", "--nvidia-resource-names=c/gpu")
    assert settings.nvidia_resource_names == ("a/gpu", "b/gpu", "c/gpu")
    assert read("--simulate-load", "train,gpu=1", "--simulate-load", "idle").simulate_loads == ("train,gpu=1", "idle")


def test_label_patterns_are_compiled() -> None:
    settings = read("--kubernetes-pod-label-allowlist-regex", "^app$,team")
    assert settings.kubernetes_pod_label_allowlist == (re.compile("^app$"), re.compile("team"))


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    assert read(GPUSTEWARD_RATIO_FILE="", DCGM_EXPORTER_KUBERNETES=" ", NODE_NAME="") == AgentSettings()


def test_the_node_name_comes_from_kubernetes_or_else_the_host() -> None:
    assert read(NODE_NAME="gpu-7").node_name == "gpu-7"
    assert read().node_name


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (["--address", "host"], {}, ["--address", "'host'", "HOST:PORT"]),
        (["-a", ":70000"], {}, ["--address", "65535"]),
        ([], {"DCGM_EXPORTER_LISTEN": "x:y"}, ["environment variable DCGM_EXPORTER_LISTEN", "'x:y'"]),
        (["--interval", "0.1"], {}, ["--interval", "'0.1'", "0.5 to 600"]),
        (["--interval", "nan"], {}, ["--interval", "0.5 to 600"]),
        (["--interval", "fast"], {}, ["'fast'", "a number of seconds"]),
        (["--collect-interval", "30"], {}, ["milliseconds", "30000", "--interval 30"]),
        ([], {"DCGM_EXPORTER_INTERVAL": "3"}, ["DCGM_EXPORTER_INTERVAL", "milliseconds", "3000"]),
        (["--interval", "5", "-c", "5000"], {}, ["--collect-interval", "keep one"]),
        (["--source", "nvlm"], {}, ["nvml, simulated", "did you mean 'nvml'"]),
        (["--dialects", "dcgm,pid2pot"], {}, ["pid2pot", "did you mean 'pid2pod'"]),
        (["--dialects", ","], {}, ["one or more of dcgm"]),
        (["--kubernetes=maybe"], {}, ["--kubernetes", "'maybe'", "true or false"]),
        ([], {"DCGM_EXPORTER_KUBERNETES": "on!"}, ["DCGM_EXPORTER_KUBERNETES", "true or false"]),
        (["--configmap-data", "fields"], {}, ["NAMESPACE:NAME"]),
        (["--web-read-timeout", "10"], {}, ["10s"]),
        (["--web-write-timeout", "0s"], {}, ["above 0"]),
        (["--kubernetes-pod-label-allowlist-regex", "a,b("], {}, ["'b('", "regular expression"]),
        (["--kubernetes-api", "localhost:8001"], {}, ["http://HOST:PORT"]),
        (["--max-concurrent-scrapes", "0"], {}, ["1 to 1000"]),
        (["--max-concurrent-scrapes", "many"], {}, ["whole number"]),
        (["--kubernetes-gpu-id-type", "index"], {}, ["uid, device-name"]),
        (["--adress", ":1"], {}, ["unknown flag '--adress'", "did you mean '--address'"]),
        (["--xyzzy-quux"], {}, ["unknown flag", "--help"]),
        (["9400"], {}, ["unexpected argument '9400'"]),
        (["--address"], {}, ["--address", "a value is missing"]),
    ],
)
def test_an_error_names_the_setting_the_value_its_origin_and_what_to_write(
    arguments: list[str], environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_settings(arguments, environ)
    for word in words:
        assert word in str(caught.value)


def test_flags_that_mean_nothing_here_are_accepted_and_remembered() -> None:
    settings = read(
        "--cpu-devices", "f", "--enable-dcgm-log", "-s=f", "--dump-retention", "3", DCGM_EXPORTER_DUMP_DIRECTORY="/x"
    )
    assert {ignored.name for ignored in settings.ignored} == {
        "--cpu-devices",
        "--enable-dcgm-log",
        "--switch-devices",
        "--dump-retention",
        "DCGM_EXPORTER_DUMP_DIRECTORY",
    }


def test_every_ignored_flag_has_the_reason_of_its_own_setting() -> None:
    reasons = dict(
        read("-s", "f", "--enable-pprof", DCGM_EXPORTER_DCGM_LOG_LEVEL="INFO", DISABLE_STARTUP_VALIDATE="1").ignored
    )
    assert reasons == {
        "--switch-devices": "NVSwitches and their links are not read.",
        "--enable-pprof": "There is no profile to serve.",
        "DCGM_EXPORTER_DCGM_LOG_LEVEL": "A hostengine writes its log itself.",
        "DISABLE_STARTUP_VALIDATE": "The agent starts without a driver and says what is missing.",
    }


def test_an_empty_path_means_the_default_as_in_dcgm_exporter() -> None:
    assert read("--web-config-file=", "--collectors=", "--config-file=") == AgentSettings()


@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_the_version_is_printed(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        read(flag)
    assert (stopped.value.code, capsys.readouterr().out) == (0, f"gpusteward {__version__}\n")


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("node-1:5555", "tcp", "node-1:5555"),
        ("nvidia-dcgm", "tcp", "nvidia-dcgm:5555"),
        ("10.0.0.7:5556", "tcp", "10.0.0.7:5556"),
        ("[::1]:5555", "tcp", "[::1]:5555"),
        ("tcp://localhost:5555", "tcp", "localhost:5555"),
        ("unix:/run/nvidia/dcgm.sock", "unix", "/run/nvidia/dcgm.sock"),
        ("unix:///run/nvidia/dcgm.sock", "unix", "/run/nvidia/dcgm.sock"),
        ("auto", "auto", ""),
        ("embedded", "embedded", ""),
    ],
)
def test_a_hostengine_is_read_from_our_flag_and_dcgm_exporters(text: str, kind: str, address: str) -> None:
    for settings in (
        read("--dcgm-hostengine", text),
        read("-r", text),
        read(f"--remote-hostengine-info={text}"),
        read(DCGM_REMOTE_HOSTENGINE_INFO=text),
        read(GPUSTEWARD_DCGM_HOSTENGINE=text),
    ):
        assert settings.dcgm_hostengine == (kind, address)
        assert settings.ignored == ()


def test_without_a_flag_there_is_no_hostengine() -> None:
    assert read().dcgm_hostengine is None
    assert read(DCGM_REMOTE_HOSTENGINE_INFO="").dcgm_hostengine is None


@pytest.mark.parametrize("text", ["5555", "host:99999", "unix:relative/path", "vsock://2:5555", "a host", "http://x:1"])
def test_an_invalid_hostengine_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"HOST:PORT, unix:PATH, embedded or auto"):
        read("--dcgm-hostengine", text)


@pytest.mark.parametrize(("text", "path"), [("/run/slurm", Path("/run/slurm")), ("", None)])
def test_the_directory_of_hpc_jobs_is_set_as_in_dcgm_exporter(text: str, path: Path | None) -> None:
    assert read("--hpc-job-mapping-dir", text).hpc_job_mapping_dir == path
    assert read(DCGM_HPC_JOB_MAPPING_DIR=text).hpc_job_mapping_dir == path


def test_flags_that_are_always_in_effect_are_not_reported_as_ignored() -> None:
    assert read("--kubernetes-enable-dra", "--kubernetes-gpu-id-type=device-name").ignored == ()


def test_every_flag_of_dcgm_exporter_is_known() -> None:
    facts = """--collectors -f --config-file --address -a --collect-interval -c
    --watch-max-keep-age --watch-max-keep-samples
    --kubernetes -k --use-old-namespace -o --cpu-devices -p --devices -d --switch-devices -s --configmap-data -m
    --remote-hostengine-info -r --kubernetes-enable-pod-labels --kubernetes-enable-pod-uid --kubernetes-gpu-id-type
    --kubernetes-pod-label-allowlist-regex --no-hostname -n --fake-gpus --web-config-file --web-systemd-socket
    --web-read-timeout --web-write-timeout --max-concurrent-scrapes --enable-exporter-metrics --xid-count-window-size -x
    --clock-events-count-window-size --replace-blanks-in-model-name --rbmn --debug --enable-dcgm-log --dcgm-log-level
    --log-format --pod-resources-kubelet-socket --hpc-job-mapping-dir --container-labels --container-runtime-socket
    --nvidia-resource-names --kubernetes-virtual-gpus --kubernetes-enable-dra --dump-enabled --dump-directory
    --dump-retention --dump-compression --disable-startup-validate --enable-gpu-bind-unbind-watch
    --gpu-bind-unbind-poll-interval --enable-pprof --health-require-gpus"""
    known = {flag for row in SETTINGS for flag in row.flags}
    assert set(facts.split()) <= known


def test_no_flag_and_no_variable_is_in_the_table_twice() -> None:
    flags = [flag for row in SETTINGS for flag in row.flags]
    variables = [name for row in SETTINGS for name in row.environment]
    assert len(flags) == len(set(flags))
    assert len(variables) == len(set(variables))


def test_every_field_is_a_row_and_every_row_that_sets_something_has_its_field() -> None:
    names = {field.name for field in dataclasses.fields(AgentSettings)} - {"ignored", "fields"}
    assert names == {row.name for row in SETTINGS if row.name}
    assert all(row.environment[0].startswith("GPUSTEWARD_") for row in SETTINGS if row.group is FlagGroup.OURS)


def test_a_person_chooses_among_at_most_45_settings() -> None:
    """Counted as the reference page lists them: our own and those of dcgm-exporter that change something here, without
    its other spellings and what is always on or ignored."""
    chosen = [row for row in SETTINGS if row.group in (FlagGroup.OURS, FlagGroup.COMPATIBLE)]
    assert len(chosen) <= 45


def test_help_shows_flag_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        read("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0
    assert "--address ADDRESS, -a ADDRESS" in text
    assert "(default :9400) [GPUSTEWARD_ADDRESS, DCGM_EXPORTER_LISTEN]" in text
    assert "accepted and ignored" in text
