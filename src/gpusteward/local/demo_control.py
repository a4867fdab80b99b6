"""How `gpusteward demo load` finds a running demo: a file in the demo's folder, which only its user can read."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

FOLDER_PREFIX = "gpusteward-demo-"
CONTROL_FILE = "control.json"
CONTROL_PATH = "/load"
INBOX_PATH = "/services/T0DEMO/B0DEMO/inbox"  # of the channel of its notices
MAX_MINUTES = 1440


@dataclass(frozen=True, slots=True)
class DemoAddress:
    """Where a demo takes requests for loads."""

    url: str
    token: str
    port: int = 0  # of its analyzer


def write_control_file(folder: Path, address: DemoAddress) -> None:
    path = folder / CONTROL_FILE
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(address)))


def find_demos(server: str = "") -> list[DemoAddress]:
    """The demos of this user: first the one whose analyzer is at this address, then the latest.

    One that was killed is among them until its folder is removed.
    """
    paths = Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/{CONTROL_FILE}")
    own = [path for path in paths if path.stat().st_uid == os.getuid()]
    latest_first = sorted(own, key=lambda each: each.stat().st_mtime, reverse=True)
    demos = [DemoAddress(**json.loads(path.read_text())) for path in latest_first]
    return sorted(demos, key=lambda demo: demo.port != urlsplit(server).port)
