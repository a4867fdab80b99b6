"""People and programs are told: notices to channels, the control webhook, alerts to Alertmanagers.

teller.py      the door: all of it together

what is told:
findings.py    idle workloads with their evidence
notices.py     decides what people are told in this cycle
routes.py      which channels are told about whom
told.py        what was told when: nothing too often
hours.py       quiet hours and the hour of the digest
messages.py    findings -> one message; digests.py the week; texts.py, amounts.py, names.py its words
control.py     gpu-oour's control webhook: its JSON; signing.py how a receiver checks it
alerts.py      idle workloads as alerts

how it arrives:
outbox.py      what is still to be delivered: in the ledger, in order for each stream, at least once; its parcels.py,
               and batches.py of them
courier.py     delivers it, whatever receivers do; breakers.py, failures.py, tallies.py
senders.py     target -> who sends; channels.py is the only importer of Apprise, and only where a channel needs it
alerting.py    pushes alerts, one alertmanager.py each
post.py        the only door to HTTP; redirects are not followed

Only addresses from the settings are ever called: what pods and annotations say can choose a channel by its name, never
an address. No secret is written to the outbox, the log or an error.
"""
