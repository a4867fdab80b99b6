"""The official client of MCP, as an assistant has it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pydantic import TypeAdapter

from gpusteward.questions.tools import TOOLS

MODES = ("auto", "legacy", "2026-07-28")
"""What a client does first: ask which versions there are, the handshake of 2025 and before, nothing."""
T = TypeVar("T")
Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Answer:
    """What a tool returned."""

    text: str
    content: Any  # structured
    is_error: bool

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    server: str | StdioServerParameters, calls: Sequence[Call], *, mode: str = "auto", headers: Mapping[str, str] = {}
) -> list[Answer]:
    """The answers to calls of tools in one session. `server`: an address, or a command."""

    async def call(client: Client) -> list[Answer]:
        results = [await client.call_tool(name, dict(arguments)) for name, arguments in calls]
        return [Answer(each.content[0].text, each.structured_content, each.is_error) for each in results]  # type: ignore[union-attr]

    return use(server, call, mode=mode, headers=headers)


def use(
    server: str | StdioServerParameters,
    act: Callable[[Client], Awaitable[T]],
    *,
    mode: str = "auto",
    headers: Mapping[str, str] = {},
) -> T:
    """Act in one session."""

    async def run() -> T:
        async with httpx2.AsyncClient(headers=dict(headers), timeout=20) as http:
            transport = streamable_http_client(server, http_client=http) if isinstance(server, str) else server
            async with Client(transport, mode=mode, read_timeout_seconds=30) as client:
                return await act(client)

    return asyncio.run(run())


def describe(tool: str) -> Any:
    """The schemas of its parameters."""
    return TypeAdapter(TOOLS[tool].__get__(object())).json_schema()["properties"]


def list_calls(*names: str, since: str = "7d", node: str = "n1", namespace: str = "") -> list[Call]:
    """Every tool with every choice it offers. `names`: of workloads and pods."""
    groupings, kinds = (describe(each)["by"]["enum"] for each in ("gpu_cost", "who_wastes_gpus"))
    place = {"namespace": namespace} if namespace else {}
    return [
        ("cluster_summary", {"days": 30}),
        *(("who_wastes_gpus", {"by": by, "since": since, **place}) for by in kinds),
        *(("explain_workload", {"name": name, **place}) for name in names),
        *(("gpu_cost", {"by": by, "since": since, **place}) for by in groupings),
        ("what_will_happen", place),
        *(("what_can_be_lent", {"horizon": each}) for each in ("1h", "4h", "morning")),
        *(("gpu_health", {"node": each}) for each in ("", node)),
    ]
