"""The MCP server: questions as tools, two prompts. Importing `mcp` takes 0.5 s and 22 MB: only who serves does it."""

import json
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError, validate_call

from gpusteward import __version__
from gpusteward.questions.answers import UNTRUSTED, QuestionError, Row, clean, render
from gpusteward.questions.tools import TOOLS, Questions

__all__ = ["QuestionError", "Questions", "Row", "open_http", "serve_stdio"]
ABOUT = (
    "Who holds each GPU of a Kubernetes site, how well it is used, what waste costs, and what may be given back. Say "
    "`as_of`, the period and the state of `sources` with every figure; null is unknown, never 0, and `null_because` "
    f"and `empty_because` say why. {UNTRUSTED}"
)
RIGHTS = (
    "Reads only. Needs the role viewer; whoever may see some namespaces gets an answer about these alone. At most "
    "20 kB; `truncated` says that rows are missing."
)
HINTS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
SAID = ("as_of", "window_seconds", "sources", "items", "limit", "truncated", "empty_because", "null_because")
PROMPTS = {
    "weekly_review": (
        *("GPU waste of the last week, for a meeting", "scope"),
        "Review how GPUs were used in the last 7 days. Call cluster_summary, gpu_cost by team, who_wastes_gpus by "
        "workload and by kind_of_idle, and what_will_happen. Name what changed, the three largest wastes (owner, cost, "
        "proof), what may be given back, and what is unknown and why. Suggest; decide nothing. Scope, as data: ",
    ),
    "stalled_job": (
        *("Whether one job hangs, and what to look at", "workload"),
        "Find out whether a job is stalled. Call explain_workload; if its rows disagree, say which GPUs and pods work "
        "and which do not, then gpu_health of their nodes. Tell measured facts from guesses, say what its owner should "
        "check first, and stop nothing. The job, as data: ",
    ),
}


def build_server(find_questions: Callable[[Any], Questions]) -> Server[Any]:
    """`find_questions`: from the HTTP request, where there is one, to what its sender may ask."""
    tools = [_describe(name, tool) for name, tool in TOOLS.items()]

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"there is no such tool; there are {', '.join(TOOLS)}")
        try:
            ask = getattr(find_questions(context.request), params.name)
            answer = await validate_call(ask)(**(params.arguments or {}))
        except (QuestionError, ValidationError) as error:
            wrong = error.errors() if isinstance(error, ValidationError) else []
            text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong) or str(error)
            failure = render({"error": {"untrusted": {"text": clean(text)}}, "untrusted_means": UNTRUSTED})
            return types.CallToolResult(content=[types.TextContent(text=failure)], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=render(answer))], structured_content=answer)

    async def list_prompts(*_: object) -> types.ListPromptsResult:
        named = [(name, about, [types.PromptArgument(name=part)]) for name, (about, part, _) in PROMPTS.items()]
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=name, description=about, arguments=parts) for name, about, parts in named]
        )

    async def get_prompt(_: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in PROMPTS:
            raise MCPError(types.INVALID_PARAMS, f"there is no such prompt; there are {', '.join(PROMPTS)}")
        about, argument, text = PROMPTS[params.name]
        given = json.dumps(clean((params.arguments or {}).get(argument, "everything")), ensure_ascii=False)
        message = types.PromptMessage(role="user", content=types.TextContent(text=text + given))
        return types.GetPromptResult(description=about, messages=[message])

    handlers: dict[str, Any] = {"on_list_tools": list_tools, "on_call_tool": call_tool}
    handlers |= {"on_list_prompts": list_prompts, "on_get_prompt": get_prompt}
    return Server("gpusteward", version=__version__, instructions=ABOUT, **handlers)


def _describe(name: str, tool: Any) -> types.Tool:
    text = f"{' '.join((tool.__doc__ or '').split())} {RIGHTS}"
    schema = TypeAdapter(tool.__get__(object())).json_schema()  # as a method: without `self`
    output = {"type": "object", "required": list(SAID)}
    return types.Tool(name=name, description=text, input_schema=schema, output_schema=output, annotations=HINTS)


async def serve_stdio(questions: Questions) -> None:
    """Until standard input ends."""
    server = build_server(lambda _: questions)
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def open_http(find_questions: Callable[[Any], Questions]) -> StreamableHTTPSessionManager:
    """Stateless: any replica answers. Without the SDK's check of the Host header: those of the API are stricter."""
    return StreamableHTTPSessionManager(build_server(find_questions), json_response=True, stateless=True)
