"""Error texts of the analyzer's HTTP API: the `detail` of a problem object."""

from gpusteward.core.messages import Message

LEDGER_DISABLED = Message(
    "the ledger is disabled (ledger.enabled: false)",
    "账本未启用（ledger.enabled: false）",
)
