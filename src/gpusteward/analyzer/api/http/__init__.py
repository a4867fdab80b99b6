"""HTTP parts that know no resource: who sends a request, error responses, concurrency limits.

roles.py               bearer tokens of the settings, and their roles
identities.py          the header of a reverse proxy, and the rules that give people a role and namespaces
oidc.py, service_accounts.py  tokens of an OpenID Connect provider and of the cluster; jwt_tokens.py, signing_keys.py
sessions.py            sessions of browsers
web_access.py          rate limit, passwords and client certificates of the web config file
request_limits.py      sizes of what a client may send
middleware.py          around every request: these limits, security headers, log, internal errors
routes.py              routes whose response models are documentation
problems.py            the JSON error shape
responses.py           responses from values and from compressed bodies; static_files.py: the files of the web UI
client_shares.py       how many requests one client may have under way
concurrency_limits.py  slow requests in threads, limited in number and time
cached_reads.py        slow reads that many requests share
"""
