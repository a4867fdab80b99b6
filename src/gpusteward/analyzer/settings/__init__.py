"""The settings of the analyzer: read from flags, environment and config.yaml, checked, and watched for changes.

    settings.py           `Settings`: every section under its key
    ledger.py, notify.py, reclaim.py, auth.py  the sections of packages that are above this one
    fields.py             finds every setting by its path (`thresholds.idle`) and describes the allowed values
    layers.py             the values given by flags, environment and file
    flags.py              the flags that `serve` and `settings` take
    effective.py          layers -> `EffectiveSettings`: settings with the origin of each value
    validation_errors.py  error texts: setting, origin, value, allowed values
    file.py               the settings while the program runs: a changed file is applied, a bad one is refused
    masked.py             the effective settings without secrets, for `gpusteward settings` and the API

`sources`, `judge`, `explain` and `prices` are below this package: they declare their own sections, which may only use
`analyzer.setting_values`, and never import this package. Nothing else in the analyzer reads the environment or
config.yaml.
"""
