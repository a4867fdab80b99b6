"""Output of the commands.

    formats.py             rows as table, JSON or CSV
    paragraphs.py          titles, facts and bullets, wrapped to the terminal
    report_table.py        a report as tables
    console.py             rich: console and progress bar
    verdict_labels.py      names of activities, states, signatures in both languages
    verdict_texts.py       the verdict on a workload as paragraphs
    quantities.py          numbers with units
    terminal_text.py       text made safe for a terminal, measured in cells
    completion_scripts.py  completion scripts for shells

Nothing here reads from a server or a file.
"""
