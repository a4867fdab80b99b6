"""Questions that an assistant asks about the GPUs of a site, through MCP (Model Context Protocol). They only read.

    answers.py  rows as an assistant should see them, and what every answer says beside them
    tools.py    the seven questions: thin over the JSON of /api/v1, which they get through one function
    server.py   the MCP server on standard input and output, and over HTTP; the only module that imports `mcp`

`gpusteward mcp` asks an analyzer over HTTP; `/mcp` of the analyzer asks its own API with the headers of the caller. So
every check of the API holds for every answer.
"""
