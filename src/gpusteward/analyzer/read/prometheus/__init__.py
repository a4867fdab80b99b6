"""Usage from a Prometheus-compatible engine; windows are computed where the samples lie.

    settings.py        what can be chosen: `prometheus.*`
    client.py          the one door to the engine: HTTP, identity, bounds, retries
    access.py          credentials and certificates
    wire.py            connections that outlive a request; answers piece by piece
    decode.py          answers -> values; half an answer is no answer
    matchers.py        `{pod!=""}`: parsed, joined, written
    spellings.py       which label says what, under all the names sites have for it
    quantities.py      what is asked for, and how a window is summed up
    dialects.py        metric names and units: native, HAMi, DCGM in all its spellings
    discovery.py       what this site has -> `Sources`
    jobs.py            scrape jobs that name the holder by another label than most
    plan.py            `Sources` -> the questions of one cycle
    expressions.py     one question as PromQL; the names of recording rules
    rules.py           the recording rules that make a cycle cheap
    freshness.py       whether they are still evaluated
    lasting.py         what of a device never changes, so that it is not asked for in every cycle
    fleets.py          how many GPUs there are, held or not
    shards.py          more series than allowed: cut by node
    victoria.py        VictoriaMetrics' raw export as another way to the same answers
    gather.py          questions -> answers in columns, a few at once
    keys.py            who is known by number
    text_keys.py       label texts -> row numbers, each parsed once
    rosters.py         who is there: present, silent, ended
    absences.py        who has been silent for longer than the window, and is awaited
    measures.py        a holder's own numbers, and its part of the device's
    blocks.py          all of it as rows of the table, with the reasons not to judge one
    joining.py         the rows of all dialects as one table
    pace.py            how often each job is scraped
    coverage.py        samples seen / expected
    contradictions.py  a zero that other signals deny
    source.py          `PrometheusSource`: the whole as a `UsageTable`
    series.py          the course of one allocation, for a chart
    running.py         what pods run, where gpusteward's agent tells it

Only `client.py` speaks HTTP, over `wire.py`. Nothing here writes to the engine.
"""
