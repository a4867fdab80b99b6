"""A node with a real kubelet, containerd and runc, started by `make test-kubelet` (.ci/kubelet) only.

The files here are not named `test_*`, so that no other run collects them: they need root, and namespaces and cgroups of
their own.
"""
