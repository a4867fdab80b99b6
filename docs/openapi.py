"""Writes the OpenAPI document of the analyzer: `python -m docs.openapi PATH`, or to standard output without a path."""

import json
import sys
from pathlib import Path

from gpusteward.analyzer.api.build import describe_api


def render_document() -> str:
    """With sorted keys: a change of the API is a small difference."""
    return json.dumps(describe_api(), ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main() -> None:
    text = render_document()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
