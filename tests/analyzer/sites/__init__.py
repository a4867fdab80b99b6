"""Foreign monitoring sites: one simulated site, changed in one thing each, on a real Prometheus.

`site_data.py`: the site and what is stored of it; `variants.py`: what is changed; `drive.py`: what the program says.
`test_sites.py` runs some of them, `python -m bench.sites` all.
"""
