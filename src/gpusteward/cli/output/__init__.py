"""Output of the commands.

    tables.py         rows as table, JSON or CSV; the progress bar
    terminal_text.py  text made safe for a terminal, measured in cells; titles, facts and bullets, wrapped to its width
    quantities.py     numbers with units
    verdict_texts.py  the verdict on a workload as paragraphs, one that has ended; the time and age of a result
    report_table.py   a report as tables
    words.py          words and texts that several commands print

Nothing here reads from a server or a file.
"""
