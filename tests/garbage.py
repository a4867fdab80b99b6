"""What only the garbage collector could free: reference cycles, which keep memory while the collector hardly runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from gpusteward.process_memory import paused_gc

_LARGE_BYTES = 10_000


@contextmanager
def keeping_garbage() -> Iterator[None]:
    """Without the collector: what is made meanwhile stays in the youngest generation, and `gc.collect(0)` visits
    nothing else."""
    gc.collect(1)
    with paused_gc():
        yield


@contextmanager
def collecting_garbage() -> Iterator[list[str]]:
    """The list is filled at the end: our own objects, parsers, exceptions and large texts that are part of a cycle."""
    found: list[str] = []
    flags = gc.get_debug()
    with keeping_garbage():
        try:
            yield found
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect(0)
            found += [name for each in gc.garbage if (name := _describe(each))]
        finally:
            gc.set_debug(flags)
            gc.garbage.clear()
            gc.collect(1)


def _describe(found: object) -> str:
    kind = type(found)
    if kind.__module__.startswith(("gpusteward", "httptools", "http.client")) or isinstance(found, BaseException):
        return f"{kind.__module__}.{kind.__qualname__}"
    texts = [each for each in gc.get_referents(found) if isinstance(each, bytes | bytearray | str)]
    return f"{kind.__qualname__} with a large text" if any(len(each) > _LARGE_BYTES for each in texts) else ""
