"""Output of the commands.

    formats.py             rows as table, JSON or CSV
    paragraphs.py          titles, facts and bullets, wrapped to the terminal
    idle_table.py          the table of `gpusteward idle`
    report_table.py        a report as tables
    plan_texts.py          decisions of reclaim: one row each, or every guard and its answer
    replay_page.py         a replay as an HTML page
    console.py             rich: console and progress bar
    verdict_labels.py      names of activities, states, signatures in both languages
    verdict_texts.py       the verdict on a workload as paragraphs; the time and age of a result
    ended_text.py          a workload that has ended
    quantities.py          numbers with units
    terminal_text.py       text made safe for a terminal, measured in cells
    completion_scripts.py  completion scripts for shells

Nothing here reads from a server or a file.
"""
