"""The second opinion of a language model, shown beside the verdict of the rules.

    settings.py      `ai.*`
    prompt_cases.py  which allocations a model is asked about, with their evidence; fingerprints for the cache
    prompts.py       a case -> instructions and data as JSON
    opinions.py      the output of a model, cleaned and bounded; opinions and their cache
    model_client.py  `ai.api_url` -> protocol and client; the only module that imports a model SDK, when it is needed
    failures.py      failures by kind, and whether a retry may help
    explainer.py     requests opinions within budget and time, and counts them; never raises
    opinion_effects.py  what an opinion changes in a verdict

A model cannot cause an action: its opinion can only make the system more careful.
"""
