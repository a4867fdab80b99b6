"""Output texts of `backfill`."""

from gpusteward.core.messages import Message

NOTHING = Message(
    "nothing to add: the time since {since} UTC is recorded or back-filled already",
    "无需补录：{since}（UTC）以来的时间已有记录或已补录",
)
ESTIMATE = Message(
    "{since} to {until} UTC; cycles: {cycles}, one every {step} s; queries to the engine: about {queries}; "
    "time: about {duration}",
    "{since} 至 {until}（UTC）：{cycles} 个周期，每 {step} 秒一个，约 {queries} 次引擎查询，约需 {duration}",
)
TITLE = Message("back-filling idle spells", "正在补录空闲段")
WITHOUT_TERMINAL = Message("back-filling idle spells ...", "正在补录空闲段……")
DONE = Message(
    "done; cycles: {cycles}, without data: {failed}; idle spells of that time in the ledger: {spells}",
    "完成：{cycles} 个周期，其中 {failed} 个没有数据；账本中该时段有 {spells} 段空闲",
)
