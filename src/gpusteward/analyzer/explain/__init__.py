"""A second opinion of a language model, shown beside the rule's verdict; plain-rules text without one.

    settings.py   `ai.*`
    cases.py      what is asked about: a verdict with its evidence, and the key it is remembered by
    choosing.py   which allocations are worth the price of a question
    questions.py  a case -> instructions and quoted data
    answers.py    what a model may answer; cleaned and bounded
    endpoints.py  `ai.api_url` -> which provider speaks there, and where exactly
    models.py     the only place that imports a model SDK, and only when a question is asked
    failures.py   what went wrong, by kind, and whether asking again may help
    memory.py     opinions by evidence, the oldest forgotten first
    tallies.py    calls, failures, tokens, cost
    explainer.py  asks within budget and time; costs nothing but its opinion when the model fails
    caution.py    verdict + opinion -> perhaps a doubt (pure): never the other way

A model has no path to an action: its opinion may only make the system more careful.
"""
