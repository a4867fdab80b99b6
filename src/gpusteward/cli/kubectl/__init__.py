"""`kubectl gpusteward`: the commands of `gpusteward`, with the analyzer that runs in the cluster of a kubeconfig.

    main.py      the entry points: the plugin, and its completion for kubectl
    proxy.py     `kubectl proxy`, which has the credentials of the kubeconfig
    analyzer.py  the flags that replace --server, the analyzer's Service, and the role: a token of its service account

Requests go through `kubectl proxy` to the API server, and through the proxy of the API server to the analyzer. Both
remove the Authorization header, so the token for the analyzer travels in a header of its own.
"""
