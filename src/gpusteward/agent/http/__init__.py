"""How the agent's pages reach a client: one connection, its request, its rights, its answer.

    server.py        listening, and how many clients are let in
    answers.py       what there is to serve (the seam to the rest of the agent)
    requests.py      one connection: TLS, requests, routes, responses
    responses.py     a response as bytes; the one shape of errors
    reading.py       reads a request under a deadline and a size limit
    config.py        a web config file of the Prometheus exporter-toolkit, read again when it changes
    sections.py      the YAML of a web config file, with complaints that name the key
    certificates.py  the TLS part of a web config file -> an ssl context
    passwords.py     basic authentication against bcrypt hashes
    rates.py         the token bucket of a web config file

Never looks at GPUs, pods or snapshots: pages arrive here as bytes.
"""
