"""Notifications: notices to people, gpu-oour's control webhook, alerts to Alertmanagers.

notifier.py         the entry point: called after every cycle
notices/            which notices are sent, to which channel, when, and their texts
control_webhook.py  events of the control webhook, their signature and their sender
outbox/             stores events in the ledger and delivers them
channels.py         target -> sender; Feishu and Slack webhooks
apprise_channel.py  all other channels, the only importer of Apprise
alertmanager/       alerts, pushed without the outbox
http_post.py        HTTP POST for all of them; redirects are not followed
links.py            links in notices: signed ones that snooze a workload, and those to the web UI
errors.py           DeliveryError

Only addresses from the settings are called: a pod's annotation can choose a channel by name, never an address. No
secret is written to the outbox, the log or an error.
"""
