"""What commands print, compared with what was read and found right.

After a change on purpose: GPUSTEWARD_WRITE_GOLDEN=1, then read the diff.
"""

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()
