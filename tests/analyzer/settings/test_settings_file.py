"""The settings file while the program runs: changes are applied, invalid ones refused and logged once."""

import os
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.settings.file import CONFIG_VARIABLE, SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.core.errors import ConfigurationError

WHERE = "config.yaml"


class Site:
    """A directory with a config.yaml, and the settings that follow it."""

    def __init__(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", logger="gpusteward")
        self._log = caplog
        self.path = directory / WHERE
        self.path.write_text("thresholds: {idle: 5}\n")
        self.file = SettingsFile(Flags(), {"INTERVAL": "60"}, directory=directory)
        self._clock = 0.0

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self._clock += 1
        os.utime(self.path, (self._clock, self._clock))

    def poll(self) -> Any:
        self._clock += 1
        return self.file.poll(self._clock)

    def events(self) -> list[str]:
        return [record.getMessage() for record in self._log.records]

    def facts(self) -> dict[str, Any]:
        return vars(self._log.records[-1])["facts"]


@pytest.fixture
def site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Site:
    return Site(tmp_path, caplog)


def test_an_unchanged_file_gives_the_very_same_settings(site: Site) -> None:
    assert site.poll() is site.poll() is site.file.settings
    assert site.events() == []


def test_a_change_is_applied_and_logged(site: Site) -> None:
    site.write("thresholds: {idle: 7}\nai: {budget: 3}\n")
    settings = site.poll()
    assert (settings.thresholds.idle, settings.ai.budget) == (7, 3)
    assert site.events() == ["settings_reloaded"]
    assert site.facts()["changed"] == "thresholds.idle,ai.budget"
    assert site.file.reloads_ok == 1


def test_a_change_to_the_same_values_is_no_change(site: Site) -> None:
    before = site.poll()
    site.write("# a comment\nthresholds: {idle: 5}\n")
    assert site.poll() is before
    assert site.events() == []


def test_an_invalid_change_is_refused_and_logged_once_and_the_last_valid_settings_stay(site: Site) -> None:
    site.write("thresholds: {idle: 99}\n")
    for _ in range(3):
        assert site.poll().thresholds.idle == 5
    assert site.events() == ["settings_refused"]
    assert "thresholds must be ordered" in site.facts()["reason"]
    site.write("thresholds: {idle: 6}\n")
    assert site.poll().thresholds.idle == 6
    assert (site.file.reloads_ok, site.file.reloads_refused) == (1, 1)


def test_a_deleted_file_leaves_the_settings_and_may_reappear(site: Site) -> None:
    site.path.unlink()
    for _ in range(3):
        assert site.poll().thresholds.idle == 5
    assert site.events() == ["settings_refused"]
    site.write("thresholds: {idle: 5}\n")
    assert site.poll().thresholds.idle == 5
    assert site.events() == ["settings_refused"]


def test_the_environment_still_wins_over_a_changed_file(site: Site) -> None:
    site.write("scheduler: {interval: 900, max_workers: 3}\n")
    settings = site.poll()
    assert (settings.scheduler.interval, settings.scheduler.max_workers) == (60, 3)


def test_a_setting_that_needs_a_restart_is_held_back_and_logged(site: Site) -> None:
    site.write("thresholds: {idle: 7}\nserver: {address: ':9999'}\nkubernetes: {owners: never}\n")
    settings = site.poll()
    assert (settings.server.address, settings.kubernetes.owners, settings.thresholds.idle) == (
        "127.0.0.1:8080",
        "auto",
        7,
    )
    assert site.events() == ["settings_reloaded", "settings_held_back"]
    assert site.facts()["paths"] == "server.address,kubernetes.owners"


def test_an_unknown_key_is_logged_once_however_often_the_file_changes(site: Site) -> None:
    for idle in (6, 7, 8):
        site.write(f"thresholds: {{idle: {idle}}}\nextra: 1\n")
        site.poll()
    assert site.events().count("setting_unknown") == 1


def test_a_mounted_config_map_whose_links_change_all_at_once_is_followed(tmp_path: Path) -> None:
    for number, idle in ((1, 5), (2, 6)):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / WHERE).write_text(f"thresholds: {{idle: {idle}}}\n")
        os.utime(tmp_path / f"..{number}" / WHERE, (1, 1))
    data = tmp_path / "..data"
    data.symlink_to("..1")
    (tmp_path / WHERE).symlink_to(Path("..data") / WHERE)
    file = SettingsFile(Flags(), {}, directory=tmp_path)
    assert file.poll(1.0).thresholds.idle == 5
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(data)
    assert file.poll(2.0).thresholds.idle == 6


def test_a_default_file_that_appears_later_is_picked_up(tmp_path: Path) -> None:
    file = SettingsFile(Flags(), {}, directory=tmp_path)
    assert file.poll(1.0) is file.settings
    (tmp_path / WHERE).write_text("thresholds: {idle: 6}\n")
    assert file.poll(2.0).thresholds.idle == 6


def test_the_file_can_be_named_by_variable_and_by_flag_which_wins(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.yaml").write_text(f"thresholds: {{idle: {number}}}\n")
    environ = {CONFIG_VARIABLE: str(tmp_path / "1.yaml")}
    assert SettingsFile(Flags(), environ, directory=tmp_path).settings.thresholds.idle == 1
    flags = Flags(config=tmp_path / "2.yaml")
    assert SettingsFile(flags, environ, directory=tmp_path).settings.thresholds.idle == 2


def test_a_requested_change_wins_over_everything_and_survives_a_reload(site: Site) -> None:
    assert site.file.change({"scheduler.interval": 120}).scheduler.interval == 120
    site.write("thresholds: {idle: 6}\n")
    settings = site.poll()
    assert (settings.scheduler.interval, settings.thresholds.idle) == (120, 6)
    assert str(site.file.effective.origin("scheduler.interval")) == "request"


def test_an_invalid_requested_change_changes_nothing(site: Site) -> None:
    before = site.file.settings
    with pytest.raises(ConfigurationError, match=r"thresholds.low_utilization: 200 \(request\)"):
        site.file.change({"thresholds.low_utilization": 200})
    assert site.poll() is before


def test_a_request_cannot_set_an_interval_that_a_file_could(site: Site) -> None:
    with pytest.raises(ConfigurationError, match=r"scheduler.interval: 99999999999 \(request\): .* 86400 at most"):
        site.file.change({"scheduler.interval": 99_999_999_999})
    assert site.file.change({"scheduler.interval": 86_400}).scheduler.interval == 86_400
    site.write("scheduler: {interval: 100000}\n")
    assert site.poll().scheduler.interval == 86_400  # as requested
    assert (
        SettingsFile(Flags(), {CONFIG_VARIABLE: str(site.path)}, directory=site.path.parent).settings.scheduler.interval
        == 100_000
    )


def test_a_file_of_other_bytes_than_text_is_refused(site: Site) -> None:
    site.path.write_bytes(b"\xff\xfe\x00")
    assert site.poll().thresholds.idle == 5
    assert "is not UTF-8 text" in site.facts()["reason"]
