"""HTTP parts that know no resource: who sends a request, error responses, concurrency limits.

roles.py               bearer tokens of the settings, and their roles
identities.py          sessions of browsers, the header of a reverse proxy, the rules that give roles and namespaces
jwt_tokens.py          signed tokens of any issuer and its keys; token_verifiers.py: those of an OpenID Connect provider
                       and of the cluster's service accounts
middleware.py          around every request: sizes of what a client may send, rate limit, passwords and client
                       certificates of the web config file, security headers, log, internal errors
problems.py            the JSON error shape
responses.py           responses from values and from compressed bodies; routes whose response models are documentation
static_files.py        the files of the web UI
concurrency_limits.py  slow requests in threads, limited in number and time; how many one client may have under way
cached_reads.py        slow reads that many requests share
"""
