"""Output texts of `ledger`."""

from gpusteward.core.messages import Message

TITLE = Message("copying the ledger", "正在复制账本")
WITHOUT_TERMINAL = Message("copying the ledger ...", "正在复制账本……")
DONE = Message(
    "done; the sums are equal; rows: {rows}, of them hours and days of allocations: {usage}",
    "完成，合计一致：共 {rows} 行，其中分配的小时与日记录 {usage} 行",
)
