"""Notifications: notices to people, gpu-oour's control webhook, alerts to Alertmanagers.

notifier.py         the entry point: called after every cycle
notices/            which notices are sent, to which channel, when, and their texts
control_webhook.py  events of the control webhook, their signature and their sender
outbox/             stores events in the ledger and delivers them
channels.py         target -> sender: Feishu and Slack webhooks, all other channels through Apprise
alertmanager.py     alerts, pushed without the outbox
http_post.py        HTTP POST for all of them; redirects are not followed
links.py            links in notices: signed ones that snooze a workload, and those to the web UI

Only addresses from the settings are called: a pod's annotation can choose a channel by name, never an address. No
secret is written to the outbox, the log or an error.
"""
