"""What a person can choose: each room declares its own settings, here they are gathered and read.

    gathered.py    every section under its key: the whole of what can be set
    sections.py    the sections that belong to no other room: scheduler, control, logging, server, kubernetes
    values.py      checks of single values
    paths.py       `thresholds.idle`: the leaves of the sections, and what each one allows
    layers.py      one layer of given values each: flags, environment, file
    flags.py       the flags that `serve` and `settings` take
    yaml_lines.py  YAML text -> values that know their line
    reading.py     layers -> settings with their origins
    complaints.py  what cannot be used, in words that mend it
    file.py        the settings while the program runs: a changed file is picked up, a bad change is refused
    showing.py     the effective settings for people, secrets masked

Nothing else in the analyzer reads the environment or config.yaml.
"""
