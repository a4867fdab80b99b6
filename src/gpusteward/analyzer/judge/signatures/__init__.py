"""What kind of (in)activity a row shows: one kind a file, each a rule and one function that says who fits.

    evidence.py     what every rule may look at
    table.py        the kinds in the order in which they are tried, and how far reclaim may go on each
    starting.py     younger than the grace
    hung.py         worked, then stood still with its memory pinned
    holdings.py     empty or parked: what an idle row holds
    keep_alive.py   made-up work
    starved.py      low, waiting on input
    bursty.py       work with pauses

Steady and unknown are what the others leave.
"""
