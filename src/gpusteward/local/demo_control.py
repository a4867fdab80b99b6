"""How `gpusteward demo load` finds a running demo: a file in the demo's folder, which only its user can read."""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER_PREFIX = "gpusteward-demo-"
CONTROL_FILE = "control.json"
CONTROL_PATH = "/load"
MAX_MINUTES = 1440


@dataclass(frozen=True, slots=True)
class DemoAddress:
    """Where a demo takes requests for loads."""

    url: str
    token: str


def write_control_file(folder: Path, address: DemoAddress) -> None:
    path = folder / CONTROL_FILE
    path.touch(mode=0o600)
    path.write_text(json.dumps({"url": address.url, "token": address.token}))


def find_demos() -> Iterator[DemoAddress]:
    """The demos of this user, the latest first. One that was killed is among them until its folder is removed."""
    paths = [path for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/{CONTROL_FILE}") if _is_own(path)]
    for path in sorted(paths, key=lambda each: each.stat().st_mtime, reverse=True):
        content = json.loads(path.read_text())
        yield DemoAddress(content["url"], content["token"])


def _is_own(path: Path) -> bool:
    return path.stat().st_uid == os.getuid()
