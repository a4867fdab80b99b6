"""The HTTP client core of both programs and the command line.

    client.py            requests and responses; connections that are reused; cancellation from another thread
    connections.py       TCP, proxy tunnel and TLS; a deadline for the whole exchange; http.client's responses
    async_connection.py  the same for an event loop (needs httptools, so the agent does not import it)
    urls.py              parsing of http and https URLs, proxies of the environment
    credentials.py       basic and bearer authentication, token files
    decoding.py          gzip and deflate
    errors.py            the error tree

Standard library only, except async_connection.py: the agent has a memory limit. What a status code means, which
requests are retried and which setting helps is decided by each caller and does not belong here.
"""
