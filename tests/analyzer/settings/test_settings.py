"""Settings from gpu-oour's file and variables, their precedence, and error texts that suggest a fix."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from gpusteward.analyzer.setting_values import SecretFile, mask_password
from gpusteward.analyzer.settings.effective import KNOWN, value_at
from gpusteward.analyzer.settings.fields import find_secret_files
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags, add_settings_flags, flags_from
from gpusteward.analyzer.settings.layers import GPU_OOUR_KEYS, GPU_OOUR_VARIABLES, variable_of
from gpusteward.analyzer.settings.masked import mask_settings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.settings.validation_errors import GONE
from gpusteward.cli.flags import FlagParser
from gpusteward.core.errors import ConfigurationError

OOUR_FILE = """\
prometheus:
  url: "http://prom:9090"
  query_condition: '{pod!=""}'
  time_window_min: 10
  step: "30s"
scoring:
  gpu_util_weight: 0.5
  mem_copy_weight: 0.2
  mem_used_weight: 0.2
  power_weight: 0.1
thresholds:
  low_utilization: 25
  idle: 10
scheduler:
  interval: 600
  max_workers: 16
gpu_defaults:
  memory_mb: 32000
  power_w: 250
control:
  enabled: false
  api_url: "http://your-control-service/api/optimize"
  timeout: 5
ai:
  enabled: true
  api_url: "https://api.openai.com/v1/chat/completions"
  api_key: ""
  model: "gpt-4"
  threshold: 0.7
  max_tokens: 2000
logging:
  level: "INFO"
  format: "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
"""


def read(
    directory: Path, text: str | None = None, environ: Mapping[str, str] | None = None, *arguments: str
) -> SettingsFile:
    if text is not None:
        (directory / "config.yaml").write_text(text)
    parser = FlagParser(prog="x", description="")
    add_settings_flags(parser)
    return SettingsFile(flags_from(parser.parse(arguments)), environ or {}, directory=directory)


def complain(directory: Path, text: str, environ: Mapping[str, str] | None = None, *arguments: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(directory, text, environ, *arguments)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_the_file_of_gpu_oour_works_unchanged_and_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read(tmp_path, OOUR_FILE).settings
    assert settings.prometheus.url == "http://prom:9090"
    assert (settings.thresholds.low_utilization, settings.thresholds.high) == (25, 70)
    assert (settings.scheduler.interval, settings.scheduler.max_workers) == (600, 16)
    assert (settings.ai.enabled, settings.ai.api_key.get_secret_value()) == (True, "")
    assert (settings.logging.level, settings.logging.as_json) == ("info", False)
    assert settings.rules.scoring.gpu_util_weight == 0.5
    assert caplog.records == []


def test_a_person_chooses_among_at_most_120_settings_of_our_own() -> None:
    """Counted as the reference page lists them: every path of the code, without the keys of gpu-oour's file."""
    assert len(KNOWN.keys() - GPU_OOUR_KEYS) <= 120


def test_the_keys_of_gpu_oour_are_those_of_its_file_and_variables() -> None:
    document = yaml.safe_load(OOUR_FILE)
    file = {f"{section}.{key}" for section, keys in document.items() for key in keys}
    assert file | set(GPU_OOUR_VARIABLES.values()) == GPU_OOUR_KEYS


def test_a_setting_that_is_gone_says_what_to_do_instead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert GONE.keys().isdisjoint(KNOWN)
    for path, instead in GONE.items():
        assert complain(tmp_path, "", {}, "--set", f"{path}=1") == f"--set {path}: unknown setting; {instead}"
    read(tmp_path, "alertmanager: {severity: warning}")
    (logged,) = (vars(record)["facts"] for record in caplog.records)
    assert logged["hint"] == GONE["alertmanager.severity"]


def test_without_a_file_every_setting_has_its_default(tmp_path: Path) -> None:
    file = read(tmp_path)
    assert file.settings == Settings()
    assert {each.source for each in mask_settings(file.effective)} == {"default"}


SAMPLES = {
    "PROM_URL": "http://other:9090",
    "QUERY_CONDITION": '{pod="x"}',
    "CONTROL_API": "http://other",
    "CONTROL_API_ENABLED": "True",
    "AI_ENABLED": "False",
    "AI_API_URL": "http://other/v1",
    "AI_RETRY_TIMES": "7",
    "AI_RETRY_DELAY": "7.5",
    "AI_MAX_TOKENS": "4000",
    "LOG_LEVEL": "ERROR",
}


@pytest.mark.parametrize(("variable", "path"), GPU_OOUR_VARIABLES.items())
def test_every_variable_of_gpu_oour_works_under_its_old_name(tmp_path: Path, variable: str, path: str) -> None:
    before = read(tmp_path, OOUR_FILE).settings
    after = read(tmp_path, OOUR_FILE, {variable: SAMPLES.get(variable, "33")})
    assert value_at(after.settings, path) != value_at(before, path)
    assert str(after.effective.origin(path)) == f"environment variable {variable}"


SWITCHES = ["CONTROL_API_ENABLED", "AI_ENABLED"]
HOOK = "control: {api_url: 'http://hook/x'}"


@pytest.mark.parametrize("variable", SWITCHES)
@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_gpu_oours_switches_are_on_where_gpu_oour_has_them_on(tmp_path: Path, variable: str, text: str) -> None:
    settings = read(tmp_path, HOOK, {variable: text}).settings
    assert value_at(settings, GPU_OOUR_VARIABLES[variable]) is True


@pytest.mark.parametrize("variable", SWITCHES)
@pytest.mark.parametrize("text", ["yes", "1", "on", "t", "y", " true ", "perhaps", ""])
def test_nothing_is_on_that_gpu_oour_leaves_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, variable: str, text: str
) -> None:
    file = "control: {enabled: true, api_url: 'http://hook/x'}\nai: {enabled: true}"
    settings = read(tmp_path, file, {variable: text}).settings
    assert value_at(settings, GPU_OOUR_VARIABLES[variable]) is False
    assert [record.getMessage() for record in caplog.records] == ["setting_read_as_false"] * bool(text)


@pytest.mark.parametrize(("text", "is_on"), [("1", False), ("'yes'", False), ("yes", True), ("'True'", True)])
def test_the_switches_in_the_file_are_read_like_gpu_oours(tmp_path: Path, text: str, is_on: bool) -> None:
    settings = read(
        tmp_path, f"control: {{enabled: {text}, api_url: 'http://hook/x'}}\nai: {{enabled: {text}}}"
    ).settings
    assert (settings.control.enabled, settings.ai.enabled) == (is_on, is_on)


def test_the_switches_under_their_own_names_know_all_words_for_true(tmp_path: Path) -> None:
    environ = {variable_of("control.enabled"): "yes", variable_of("ai.enabled"): "1", "AI_ENABLED": "false"}
    settings = read(tmp_path, HOOK, environ).settings
    assert (settings.control.enabled, settings.ai.enabled) == (True, True)


@pytest.mark.parametrize(
    ("variable", "text", "is_unwise"),
    [
        ("INTERVAL", "5", True),
        ("INTERVAL", "1", True),
        ("INTERVAL", "604800", True),
        ("INTERVAL", "30", False),
        ("MAX_WORKERS", "128", False),
        ("AI_MAX_TOKENS", "32", True),
        ("AI_MAX_TOKENS", "200000", True),
        ("AI_RETRY_TIMES", "0", True),
        ("AI_RETRY_TIMES", "20", True),
        ("AI_RETRY_DELAY", "120", True),
        ("TIME_WINDOW_MIN", "20160", True),
        ("LOG_LEVEL", "NOTSET", False),
    ],
)
def test_values_that_gpu_oour_starts_with_are_used_and_unwise_ones_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, variable: str, text: str, is_unwise: bool
) -> None:
    used = str(value_at(read(tmp_path, "", {variable: text}).settings, GPU_OOUR_VARIABLES[variable]))
    assert used in (text, f"{text}.0", "debug")
    assert [record.getMessage() for record in caplog.records] == ["setting_unwise"] * is_unwise


def test_a_step_may_be_a_number_of_seconds_as_in_prometheus(tmp_path: Path) -> None:
    assert read(tmp_path, "prometheus: {step: 15}").settings.prometheus.step_seconds == 15


def test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default(tmp_path: Path) -> None:
    text = "scheduler: {interval: 100}\nai: {budget: 1, model: m}\nserver: {address: ':1'}"
    environ = {
        "INTERVAL": "200",
        variable_of("ai.budget"): "2",
        variable_of("server.address"): ":2",
        "AI_MODEL": "old name",
        variable_of("ai.model"): "own name",
    }
    file = read(tmp_path, text, environ, "--address", ":3", "--set", "ai.budget=3")
    settings = file.settings
    assert (settings.server.listen, settings.ai.budget) == (("", 3), 3)
    assert (settings.scheduler.interval, settings.ai.model, settings.ai.threshold) == (200, "own name", 0.7)
    origins = [str(file.effective.origin(path)) for path in ("server.address", "ai.budget", "ai.model", "ai.threshold")]
    assert origins == ["flag --address", "flag --set", "environment variable GPUSTEWARD_AI__MODEL", "default"]


def test_every_setting_has_a_variable_and_a_description() -> None:
    assert len({variable_of(path) for path in KNOWN}) == len(KNOWN)
    assert variable_of("judge.activity.coverage") == "GPUSTEWARD_JUDGE__ACTIVITY__COVERAGE"
    assert [path for path, field in KNOWN.items() if not field.description] == []


def test_a_model_writes_in_the_language_of_notices(tmp_path: Path) -> None:
    assert read(tmp_path, "").settings.ai.language == "zh"
    assert read(tmp_path, "ai: {enabled: false}\nnotify: {language: en}").settings.ai.language == "en"
    assert read(tmp_path, "", {variable_of("notify.language"): "en"}).settings.ai.language == "en"


def test_empty_variables_and_empty_keys_are_not_set(tmp_path: Path) -> None:
    file = read(tmp_path, "ai:\nprometheus:\n  url:\nscheduler: ~\n", {"PROM_URL": " ", "INTERVAL": ""})
    assert file.settings == Settings()


def test_lists_and_mappings_can_be_written_in_a_variable(tmp_path: Path) -> None:
    environ = {variable_of("prometheus.headers"): '{"X-Scope-OrgID": "7"}', variable_of("ai.api_key"): "123"}
    settings = read(tmp_path, "prometheus: {headers: {X-Scope-OrgID: 8}}", environ).settings
    assert settings.prometheus.headers["X-Scope-OrgID"].get_secret_value() == "7"
    assert settings.ai.api_key.get_secret_value() == "123"


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        ("thresholds:\n  idle: cold", "thresholds.idle: 'cold' (config.yaml line 2): write a number from 0 to 100"),
        ("thresholds:\n  idle: 101", "thresholds.idle: 101 (config.yaml line 2): write a number from 0 to 100"),
        ("notify: {language: fr}", "notify.language: 'fr' (config.yaml line 1): write one of en, zh"),
        ("ai: {enabled: perhaps}", "ai.enabled: 'perhaps' (config.yaml line 1): write true or false"),
        (
            "scheduler: {interval: 1.5}",
            "scheduler.interval: 1.5 (config.yaml line 1): write a whole number at least 1",
        ),
        ("scrape: {timeout: 0}", "scrape.timeout: 0 (config.yaml line 1): write a number above 0 and at most 120"),
        (
            "control: {api_url: nowhere}",
            "control.api_url: 'nowhere' (config.yaml line 1): write a URL: http://HOST:PORT/PATH or https://HOST/PATH",
        ),
        (
            "thresholds:\n  idle: 30",
            "thresholds.idle 30 (config.yaml line 2): thresholds must be ordered: idle <= low_utilization <= high",
        ),
        (
            "thresholds: {idle: 60, high: 30, low_utilization: 40}",
            "thresholds.low_utilization 40 (config.yaml line 1), thresholds.idle 60 (config.yaml line 1), "
            "thresholds.high 30 (config.yaml line 1): thresholds must be ordered: idle <= low_utilization <= high",
        ),
        (
            "scoring: {gpu_util_weight: 0, mem_copy_weight: 0, mem_used_weight: 0, power_weight: 0}",
            "at least one weight of scoring must be above 0",
        ),
        (
            "control:\n  enabled: true",
            "control.enabled True (config.yaml line 2): control.enabled needs control.api_url",
        ),
        ("thresholds: 5", "thresholds (config.yaml line 1): expected keys with values, found a single value"),
        ("- a", "config.yaml line 1: expected keys with values, found a list"),
        ("ai: {a: b", "config.yaml line 1 is not YAML: expected ',' or '}', but got '<stream end>'"),
        ("a: \x98", "config.yaml is not YAML: special characters are not allowed"),
        ("a: !!python/name:os.system x", "is not YAML: could not determine a constructor"),
    ],
)
def test_an_error_names_the_setting_its_value_its_origin_and_what_is_allowed(
    tmp_path: Path, text: str, error_text: str
) -> None:
    assert error_text in complain(tmp_path, text)


def test_several_errors_are_reported_together_one_per_line(tmp_path: Path) -> None:
    errors = complain(
        tmp_path, "notify: {language: fr}\nthresholds: {idle: x}", {"INTERVAL": "soon"}, "--address", "x:y"
    )
    assert [line.partition(":")[0] for line in errors.splitlines()] == [
        "thresholds.idle",
        "scheduler.interval",
        "notify.language",
        "server.address",
    ]
    assert "'soon' (environment variable INTERVAL)" in errors
    assert "'x:y' (flag --address)" in errors


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["--adress", ":1"], "unknown flag '--adress'; did you mean '--address'?"),
        (["--set", "ai.enabled"], "--set 'ai.enabled' has no value: write --set PATH=VALUE"),
        (["--set", "ai.enabeld=1"], "--set ai.enabeld: unknown setting; did you mean 'ai.enabled'?"),
        (["--set", "xyzzy=1"], "--set xyzzy: unknown setting; `gpusteward settings` lists all settings"),
        (["--config", "nowhere.yaml"], "nowhere.yaml cannot be read: no such file or directory; check --config"),
        (["--address"], "--address: a value is missing"),
    ],
)
def test_an_invalid_flag_is_explained(tmp_path: Path, arguments: list[str], error_text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\S") as caught:
        read(tmp_path, None, {}, *arguments)
    assert str(caught.value).endswith(error_text)


@pytest.mark.parametrize("path", find_secret_files(KNOWN).values())
def test_a_secret_may_be_in_a_file_and_each_layer_covers_the_one_below(tmp_path: Path, path: str) -> None:
    section, _, key = path.rpartition(".")
    value, file = f"{section}: {{{key}: 'sixteen letters or more'}}", f"{section}: {{{key}_file: /run/secret}}"
    assert value_at(read(tmp_path, file).settings, path) == SecretFile(Path("/run/secret"))
    covered = read(tmp_path, file, {variable_of(path): "sixteen letters or more"})
    assert value_at(covered.settings, path) == SecretStr("sixteen letters or more")
    in_file = read(tmp_path, value, {variable_of(f"{path}_file"): "/run/other"})
    assert value_at(in_file.settings, path) == SecretFile(Path("/run/other"))
    by_flag = read(tmp_path, value, {}, "--set", f"{path}_file=/run/flag")
    assert shown(by_flag, path) == "file /run/flag"
    assert "keep one of them" in complain(tmp_path, f"{section}: {{{key}: abcdefghijklmnopqr, {key}_file: /k}}")
    assert value_at(read(tmp_path, f"{section}: {{{key}: '', {key}_file: /k}}").settings, path) == SecretFile(
        Path("/k")
    )


def shown(file: SettingsFile, path: str) -> object:
    return next(each.value for each in mask_settings(file.effective) if each.path == path)


SECRET = "sk-never-to-be-seen"


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        (f"ai: {{api_key: {SECRET}, api_key_file: /k}}", {}),
        (f"ai: {{api_key: [{SECRET}]}}", {}),
        (f"prometheus: {{url: 'ftp://user:{SECRET}@host'}}", {}),
        (f"prometheus: {{headers: [{SECRET}]}}", {}),
        (f"ai: {SECRET}", {}),
        (f"ai: {{api_key: *{SECRET}}}", {}),
        ("notify: {language: fr}", {"AI_API_KEY": SECRET}),
    ],
)
def test_a_secret_is_in_no_error_text(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    assert SECRET not in complain(tmp_path, text, environ)


def test_a_secret_is_in_nothing_that_is_shown(tmp_path: Path) -> None:
    text = (
        f"prometheus: {{url: 'http://me:{SECRET}@prom:9090', headers: {{A: {SECRET}}}, password: {SECRET}}}\n"
        f"control: {{enabled: true, api_url: 'http://hook/low?team=a&token={SECRET}'}}"
    )
    file = read(tmp_path, text, {"AI_API_KEY": SECRET, variable_of("server.tokens"): f"admin: {SECRET}"})
    assert SECRET not in repr(mask_settings(file.effective)) + repr(file.settings.ai) + repr(file.settings.server)
    shown = {each.path: each.value for each in mask_settings(file.effective)}
    assert shown["prometheus.url"] == "http://**********@prom:9090"
    assert shown["control.api_url"] == "http://hook/low?team=**********&token=**********"
    assert shown["ai.api_key"] == "**********"
    assert shown["prometheus.bearer_token"] == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:p@ss@prom:9090/x", "http://**********@prom:9090/x"),
        ("http://TOKEN@prom", "http://**********@prom"),
        ("http://TOKEN:@prom?key=K", "http://**********@prom?key=**********"),
        ("http://me:pa/ss@prom", "http://**********@prom"),
        ("http://prom:9090/me@here", "http://prom:9090/me@here"),
        ("http://[::1]:9090/me@here", "http://[::1]:9090/me@here"),
    ],
)
def test_no_part_of_a_url_that_may_be_a_credential_is_shown(url: str, shown: str) -> None:
    assert mask_password(url) == shown


OOUR_THRESHOLDS = {0: (0, 70), 5: (5, 70), 9: (9, 70), 10: (10, 70), 20: (10, 70), 70: (10, 70), 90: (10, 90)}
"""gpu-oour accepts each of these; the values are our two thresholds that are used with it."""


@pytest.mark.parametrize(("low", "beside"), OOUR_THRESHOLDS.items())
@pytest.mark.parametrize("way", ["file", "environment", "request", "gpu-oour file and environment"])
def test_every_threshold_that_gpu_oour_accepted_is_accepted(
    tmp_path: Path, low: int, beside: tuple[int, int], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = {"file": f"thresholds: {{low_utilization: {low}}}", "gpu-oour file and environment": OOUR_FILE}.get(way)
    file = read(tmp_path, text, {"THRESHOLD": str(low)} if "environment" in way else {})
    if way == "request":
        file.change({"thresholds.low_utilization": float(low)})
        file.change({"scheduler.interval": 60})  # nothing is logged twice
    used = file.settings.thresholds
    assert (used.low_utilization, used.idle, used.high) == (low, *beside)
    logged = [vars(record)["facts"] for record in caplog.records if record.getMessage() == "setting_adjusted"]
    assert [each["used"] for each in logged] == [new for new, old in zip(beside, (10, 70), strict=True) if new != old]


def test_an_unknown_key_is_logged_with_the_nearest_known_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environ = {"GPUSTEWARD_AI__MODLE": "x", "GPUSTEWARD_PORT_8080_TCP": "tcp://", "GPUSTEWARD_SERVICE_HOST": "1"}
    read(tmp_path, "thresholds: {idel: 5}\nfeishu: {webhook: x}\ninterval: 5", environ)
    logged = [vars(record)["facts"] for record in caplog.records]
    assert [(each["setting"], each["hint"]) for each in logged] == [
        ("feishu", "`gpusteward settings` lists all settings"),
        ("interval", "did you mean 'scheduler.interval'?"),
        ("thresholds.idel", "did you mean 'thresholds.idle'?"),
        ("ai.modle", "did you mean 'ai.model'?"),
    ]


def test_an_empty_list_of_flags_is_valid(tmp_path: Path) -> None:
    assert SettingsFile(Flags(), {}, directory=tmp_path).settings == Settings()
