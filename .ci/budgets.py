"""Counts files and lines per package and compares them with `[tool.gpusteward.budgets]` of pyproject.toml.

Run by `make check`. A package that is more than 3 % over its budget fails, as does one without a budget. Who adds a
mechanism names the one that it replaces, or raises the budget in the same commit and says why in its message.
`--toml` prints the present figures as the section of pyproject.toml.
"""

import math
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path("src/gpusteward")
MOST_OVER = 1.03


class Size(NamedTuple):
    files: int
    lines: int


def count_packages(root: Path) -> dict[str, Size]:
    """The packages of the source tree, those of the analyzer each for itself, and bench."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in [*(root / SOURCE).rglob("*.py"), *(root / "bench").rglob("*.py")]:
        package = _name_package(path.relative_to(root))
        files[package] += 1
        lines[package] += path.read_text(encoding="utf-8").count("\n")
    return {package: Size(files[package], lines[package]) for package in sorted(files)}


def _name_package(path: Path) -> str:
    if not path.is_relative_to(SOURCE):
        return path.parts[0]
    folders = path.relative_to(SOURCE).parts[:-1]
    return "/".join(folders[: 2 if folders[:1] == ("analyzer",) else 1]) or "."


def compare(sizes: Mapping[str, Size], budgets: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What is wrong, a sentence each."""
    wrong = [f"{package} has no budget" for package in sizes if package not in budgets]
    wrong += [f"{package} has a budget and no files" for package in budgets if package not in sizes]
    for package, size in sizes.items():
        for name, most in budgets.get(package, {}).items():
            # Rounded up: 3 % of a package of ten files would not allow one more.
            if (count := getattr(size, name)) > math.ceil(most * MOST_OVER):
                wrong.append(f"{package} has {count:,} {name}, more than 3 % over its budget of {most:,}")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Print the figures; 1 if a package is over its budget."""
    root = Path(__file__).parents[1]
    sizes = count_packages(root)
    if "--toml" in arguments:
        for package, size in sizes.items():
            print(f'"{package}" = {{ files = {size.files}, lines = {size.lines} }}')
        return 0
    budgets = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["gpusteward"]["budgets"]
    print(f"{'package':20} {'files':>6} {'budget':>7} {'lines':>7} {'budget':>7}")
    for package, size in sizes.items():
        most = budgets.get(package, {})
        print(f"{package:20} {size.files:6,} {most.get('files', 0):7,} {size.lines:7,} {most.get('lines', 0):7,}")
    total = Size(sum(size.files for size in sizes.values()), sum(size.lines for size in sizes.values()))
    print(f"{'all':20} {total.files:6,} {'':7} {total.lines:7,}")
    wrong = compare(sizes, budgets)
    for sentence in wrong:
        print(f"{sentence} (pyproject.toml, tool.gpusteward.budgets)", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
