"""Renders a report as CSV, JSON or HTML, and charges as CSV. Standard library only, so that clients can use it too.

    quantities.py     formats numbers and times
    descriptions.py   names, sentences and notes in both languages (texts: gpusteward/messages/reports.py)
    csv_text.py       one row per group, safe to open in a spreadsheet
    focus_csv.py      charges with the columns of FOCUS
    json_text.py      the whole report, and back
    html_page.py      one file that needs no network
    charts.py         its charts, as SVG
    page_style.css    its style, light and dark

Names in a report come from outside: they are escaped here, when they are written.
"""
