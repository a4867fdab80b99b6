"""Output of commands, compared with golden files.

To update them, set GPUSTEWARD_WRITE_GOLDEN=1 and read the diff.
"""

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()
