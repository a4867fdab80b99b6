"""`python -m tests.analyzer.ledger.crash_runs RUNS FOLDER [URL]`: records cycles in a process that is killed again and
again, and compares the ledger with that of an uninterrupted run. Prints what happened as JSON.

A separate process with one thread, because it forks, which is a hundred times cheaper than a start.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, text

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.retention import roll_up
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from tests.analyzer.ledger.cycles import open_ledger, random_cycles, read_ledger

MOST_KILLS = 4
CYCLES = 16


class RunLedger:
    """The ledger of one run: a new file, or the shared database, emptied."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._is_shared = bool(url)
        self.url = url or f"sqlite:///{path}"
        self._engine = open_engine(LedgerSettings(url=self.url).locate())

    def empty(self) -> None:
        self._path.unlink(missing_ok=True)
        if self._is_shared:
            with self._connected() as engine, engine.begin() as connection:
                connection.execute(text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))

    def read(self) -> dict[str, list[dict[str, Any]]]:
        with self._connected() as engine:
            tables = read_ledger(engine)
        for row in tables["verdict_changes"]:
            row["id"] = 0  # PostgreSQL skips the ids of rows that were rolled back
        return tables

    @contextmanager
    def _connected(self) -> Iterator[Engine]:
        """Without connections that a fork would share; the statements it has compiled are kept."""
        yield self._engine
        self._engine.dispose()


def main(arguments: Sequence[str]) -> int:
    runs, folder, url = int(arguments[0]), Path(arguments[1]), "".join(arguments[2:])
    results, chance = random_cycles(CYCLES, seed=11), random.Random(4)
    run_ledger = RunLedger(folder / "ledger.db", url)
    _record(results, f"sqlite:///{folder / 'warm-up.db'}")  # what it loads and compiles is there in every fork
    seconds, steps = _measure(results, run_ledger, folder)
    reference = run_ledger.read()
    found = {"runs": runs, "kills": 0, "different": 0, "rows": sum(map(len, reference.values()))}
    for _ in range(runs):
        run_ledger.empty()
        found["kills"] += _record_with_kills(results, run_ledger, chance, seconds=seconds, steps=steps)
        found["different"] += run_ledger.read() != reference
    print(json.dumps(found))
    return 0


def _measure(results: Sequence[Result], run_ledger: RunLedger, folder: Path) -> tuple[float, int]:
    """Seconds and steps of an uninterrupted run."""
    run_ledger.empty()
    started = time.monotonic()
    assert _run(results, run_ledger, note=folder / "steps")
    return time.monotonic() - started, int((folder / "steps").read_text())


def _record_with_kills(
    results: Sequence[Result], run_ledger: RunLedger, chance: random.Random, *, seconds: float, steps: int
) -> int:
    """Killed alternately at a random time and before a random statement or commit; the last run is not killed."""
    for kills in range(MOST_KILLS):
        at = {"seconds": chance.uniform(0, seconds)} if kills % 2 else {"step": chance.randint(1, steps)}
        if _run(results, run_ledger, **at):
            return kills
    assert _run(results, run_ledger)
    return MOST_KILLS


def _run(
    results: Sequence[Result],
    run_ledger: RunLedger,
    *,
    seconds: float | None = None,
    step: int = 0,
    note: Path | None = None,
) -> bool:
    """Whether the run finished; it is killed after `seconds`, or at `step`."""
    child = os.fork()
    if child == 0:
        try:
            counted = _count_steps(step)
            _record(results, run_ledger.url)
            if note:
                note.write_text(str(counted[0]))
            os._exit(0)
        finally:  # the child must never return into the code of the parent
            traceback.print_exc()
            os._exit(1)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed without being killed"
    return not os.WIFSIGNALED(status)


def _count_steps(last: int) -> list[int]:
    """Counts transactions begun, statements and commits; kills this process before the last."""
    counted = [0]

    def step(*_: object) -> None:
        counted[0] += 1
        if counted[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("begin", "before_cursor_execute", "commit"):
        event.listen(Engine, name, step)
    return counted


def _record(results: Sequence[Result], url: str) -> None:
    """As a restarted analyzer does, from the beginning: what is recorded already must not count again."""
    ledger = open_ledger(url)
    for result in results:
        ledger.record(result)
    while roll_up(ledger.engine):
        pass
    assert ledger.describe()["error"] == "", ledger.describe()
    ledger.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
