"""`gpusteward mcp`: answers questions of an assistant about a running analyzer, on standard input and output."""

from collections.abc import Sequence

from gpusteward.cli.flags import FlagParser, add_language_flag, add_server_flags, make_analyzer_client, make_parser
from gpusteward.cli.program import EXIT_OK, is_plugin, require_libraries
from gpusteward.core.errors import ConfigurationError, SourceError


def build_parser() -> FlagParser:
    parser = make_parser(
        "mcp",
        "Answer questions of an assistant about GPUs, waste and cost: a server of the Model Context Protocol on "
        "standard input and output, which the assistant starts. It only reads, with the rights of the token.",
    )
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    with require_libraries("mcp"):
        import anyio

        from gpusteward.questions.server import QuestionError, Questions, Row, serve_stdio
    client = make_analyzer_client(options)

    async def fetch(path: str, query: Sequence[tuple[str, str]]) -> Row:
        try:
            return await anyio.to_thread.run_sync(client.read, path, query)
        except (SourceError, ConfigurationError) as error:
            raise QuestionError(str(error)) from error

    anyio.run(serve_stdio, Questions(fetch, "" if is_plugin() else client.url))
    return EXIT_OK
