"""Records the NVML calls of one collection so that they can be repeated."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pynvml

from gpusteward.agent.nvml import Nvml

Function = Callable[..., int]
Call = tuple[Function, tuple[Any, ...]]


class Recorder:
    """Wraps the library's functions and records the calls with their arguments and return codes."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.codes: list[int] = []
        self._thread = threading.get_ident()
        self._find: Callable[[str], Function] = pynvml._nvmlGetFunctionPointer

    def __enter__(self) -> "Recorder":
        pynvml._nvmlGetFunctionPointer = self._wrap
        return self

    def __exit__(self, *_: object) -> None:
        pynvml._nvmlGetFunctionPointer = self._find

    def start(self) -> None:
        """Drop the calls recorded so far."""
        self.calls.clear()
        self.codes.clear()

    def _wrap(self, name: str) -> Function:
        function = self._find(name)

        def call(*arguments: Any) -> int:
            own = tuple(_keep(argument) for argument in arguments)
            code = function(*arguments)
            if threading.get_ident() == self._thread:  # the thread that waits for XIDs is not part of a collection
                self.calls.append((function, own))
                self.codes.append(code)
            return code

        return call


def record_read(nvml: Nvml, wanted: frozenset[str]) -> list[Call]:
    """The calls of a later read, without those that are made only once.

    They can be repeated while `nvml` stays open. Raises RuntimeError if they return other codes.
    """
    with Recorder() as recorder:
        for _ in range(3):
            recorder.start()
            nvml.read(wanted, peers="peer_status" in wanted)
        for _ in range(2):
            if [function(*arguments) for function, arguments in recorder.calls] != recorder.codes:
                raise RuntimeError("the recorded NVML calls return other codes when they are repeated")
    return recorder.calls


def replay(calls: list[Call]) -> None:
    for function, arguments in calls:
        function(*arguments)


def _keep(argument: Any) -> Any:
    """The agent uses one counter for many lists: each recorded call gets its own, as it was before the call."""
    pointed_at = getattr(argument, "_obj", None)
    if isinstance(pointed_at, ctypes.c_uint):
        return ctypes.byref(ctypes.c_uint(pointed_at.value))
    return argument
