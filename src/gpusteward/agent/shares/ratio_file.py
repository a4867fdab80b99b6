"""k8s-vgpu-monitor's ratio file: one number, by how many pods each GPU of the node is shared."""

import math
from pathlib import Path

from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import Log
from gpusteward.messages.errors.os_errors import explain_os_error

MAX_BYTES = 4096  # a longer file is not a ratio file
log = Log(__name__)

_Stamp = tuple[int, int, int]  # inode, size, time of change


class RatioFile:
    """The ratio, reloaded when the file changes. When a ConfigMap swaps its symlinks, the inode changes."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError if the file is invalid at the start."""
        self._path = path
        self._stamp = _read_stamp(path)
        self._ratio = read_ratio(path)

    def poll(self) -> float:
        """The current ratio. An invalid change is logged once and the last valid value stays active."""
        stamp = _read_stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                ratio = read_ratio(self._path)
            except ConfigurationError as error:
                log.warning("ratio_refused", reason=error, kept=self._ratio)
                return self._ratio
            if ratio != self._ratio:
                log.info("ratio_changed", path=self._path, before=self._ratio, now=ratio)
            self._ratio = ratio
        return self._ratio


def read_ratio(path: Path) -> float:
    """The number in the file. Raises ConfigurationError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the ratio file {path}: {explain_os_error(error)}; it must contain one "
            "number above 0, such as 2 (each GPU is shared by two pods)"
        ) from error
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not math.isfinite(ratio) or ratio <= 0:
        raise ConfigurationError(
            f"ratio file {path} contains {text[:60]!r}; it must contain one number above 0, such as 2 "
            "(each GPU is shared by two pods)"
        )
    return ratio


def _read_stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
