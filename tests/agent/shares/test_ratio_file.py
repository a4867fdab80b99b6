"""The ratio file of k8s-vgpu-monitor: one number, reloaded when it changes, refused with a reason if invalid."""

import logging
from pathlib import Path

import pytest

from gpusteward.agent.shares.ratio_file import RatioFile
from gpusteward.core.errors import ConfigurationError


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "ratio"), [("2", 2.0), ("2.5\n", 2.5), ("  4 \n\n", 4.0), ("1e1", 10.0), ("0.5", 0.5)]
)
def test_one_number_with_blanks_around_it_is_the_ratio(tmp_path: Path, text: str, ratio: float) -> None:
    assert RatioFile(write(tmp_path / "gpu_allocation.txt", text)).poll() == ratio


@pytest.mark.parametrize("text", ["0", "-2", "nan", "inf", "two", "", "2 3", "2;", "9" * 400, "\x00"])
def test_anything_else_is_refused_with_path_value_and_what_is_allowed(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "gpu_allocation.txt", text)
    with pytest.raises(ConfigurationError, match="must contain one number above 0") as caught:
        RatioFile(path)
    assert str(path) in str(caught.value)
    assert repr(text.strip()[:20])[1:-1] in str(caught.value)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the ratio file .*absent\.txt: no such file"):
        RatioFile(tmp_path / "absent.txt")


def test_a_directory_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a directory"):
        RatioFile(tmp_path)


def test_a_change_is_applied(tmp_path: Path) -> None:
    ratio = RatioFile(write(tmp_path / "gpu_allocation.txt", "2"))
    write(tmp_path / "gpu_allocation.txt", "10")
    assert ratio.poll() == 10.0


def test_the_symlink_swap_of_a_mounted_config_map_is_applied(tmp_path: Path) -> None:
    for version, text in (("..1", "2"), ("..2", "4")):
        (tmp_path / version).mkdir()
        write(tmp_path / version / "gpu_allocation.txt", text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "gpu_allocation.txt").symlink_to("..data/gpu_allocation.txt")
    ratio = RatioFile(tmp_path / "gpu_allocation.txt")
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert ratio.poll() == 4.0


@pytest.mark.parametrize("text", ["none", "0", "-3"])
def test_an_invalid_change_keeps_the_last_valid_value_and_is_logged_once(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ratio = RatioFile(write(tmp_path / "gpu_allocation.txt", "2"))
    write(tmp_path / "gpu_allocation.txt", text)
    assert [ratio.poll() for _ in range(3)] == [2.0, 2.0, 2.0]
    assert [record.message for record in caplog.records] == ["ratio_refused"]


def test_a_file_that_disappears_keeps_its_value_until_it_is_back(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu_allocation.txt", "2")
    ratio = RatioFile(path)
    path.unlink()
    assert ratio.poll() == 2.0
    write(path, "3")
    assert ratio.poll() == 3.0
