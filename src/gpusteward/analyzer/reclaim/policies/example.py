"""An example of a policy file: what acts on idle workloads of every class, with the windows that the trace supports."""

EXAMPLE = """\
# Policies of gpusteward: the first that matches a workload counts, and what none of them matches is at most notified.
# Fields that a policy leaves out have the default of the class of the workload; without an action it only notifies.
# Try the file with `gpusteward replay --policy FILE` and in mode observe before it acts.
policies:
  # Notebooks, workspaces and pods without an owner: idle for an hour, then 30 minutes to answer.
  - name: interactive
    match: {classes: [interactive]}
    action: suspend
    window: 60m
    grace: 30m
    highest_chance: 0.3
  # Jobs pause for data, evaluation and checkpoints: five hours, and two warnings.
  - name: batch
    match: {classes: [batch]}
    action: suspend
    window: 5h
    grace: 60m
    highest_chance: 0.3
    warnings: 2
    warning_interval: 30m
  # Replicas that nobody needs; only where the owner says that they are interchangeable (gpusteward.io/interchangeable).
  - name: serving
    match: {classes: [serving]}
    action: scale-to-keep  # to what the pool rule keeps: careful below 16 replicas, keen from there on
    grace: 10m
    highest_chance: 1
"""
