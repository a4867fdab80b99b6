"""A report as a text: CSV, JSON, HTML. Values in, text out; the standard library only, so that clients can use it too.

    quantities.py    numbers as people read them
    words.py         the two languages
    csv_text.py      one row a group, safe to open in a spreadsheet
    json_text.py     the whole report, and back
    html_page.py     one file that opens without a network
    charts.py        its drawings, as SVG
    page_style.css   how it looks, by day and by night

Every name in a report is somebody else's text: it is escaped here, at the last moment.
"""
