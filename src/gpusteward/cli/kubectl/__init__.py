"""`kubectl gpusteward`: the commands of `gpusteward`, with the analyzer that runs in the cluster of a kubeconfig.

    main.py             the entry points: the plugin, and its completion for kubectl
    flags.py            the flags that replace --server; the client of the analyzer that they describe
    kubeconfig.py       the files, and the context chosen from them
    credentials.py      certificates, tokens and exec plugins of a context: access to the API server
    analyzer_access.py  the analyzer's Service, and the role: a token of its service account

Requests go through the proxy of the API server. It removes the Authorization header, so the token for the analyzer
travels in a header of its own. The credentials of the kubeconfig are sent to the API server only.
"""
