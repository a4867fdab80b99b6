"""Error texts of the ledger and of reports that read it."""

from gpusteward.core.messages import Message

INVALID_URL = Message(
    "ledger.url cannot be used ({reason}); use sqlite:///PATH or postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    "ledger.url 无效（{reason}）；格式为 sqlite:///PATH 或 postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
)
OTHER_SCHEMA = Message(
    "the ledger has schema version {version}, but this gpusteward uses version {supported}; use the gpusteward that "
    "wrote it, or another database (ledger.url)",
    "账本的 schema 版本为 {version}，当前 gpusteward 使用版本 {supported}；请使用写入该账本的 gpusteward，"
    "或更换数据库（ledger.url）",
)
COPY_EMPTY = Message("the SQLite file has no ledger", "该 SQLite 文件中没有账本")
COPY_NO_FILE = Message(
    "there is no SQLite ledger at {path}; name it with --from", "{path} 处没有 SQLite 账本；请用 --from 指定"
)
COPY_NOT_POSTGRESQL = Message(
    "ledger.url must name the PostgreSQL to copy to (GPUSTEWARD_LEDGER__URL)",
    "ledger.url 必须是复制的目标 PostgreSQL（GPUSTEWARD_LEDGER__URL）",
)
COPY_SOURCE_IN_USE = Message(
    "an analyzer uses the SQLite file; stop it first, so that nothing is recorded after its rows were copied",
    "analyzer 正在使用该 SQLite 文件；请先停止它，以免复制之后仍有新记录",
)
COPY_TARGET_IN_USE = Message(
    "the PostgreSQL already has another ledger; copy into an empty database, before the first analyzer uses it",
    "该 PostgreSQL 已有另一份账本；请在 analyzer 首次使用之前复制到空数据库",
)
COPY_DIFFERS = Message(
    "the sums of the copy differ from those of the SQLite file; copy into an empty database",
    "副本的合计与 SQLite 文件不一致；请复制到空数据库",
)
NOT_WRITABLE = Message("the ledger cannot be written: {reason}", "无法写入账本：{reason}")
NOT_READABLE = Message("the ledger cannot be read: {reason}", "无法读取账本：{reason}")
INVALID_GROUPING = Message("'{by}' is not one of {groupings}", "“{by}”不是有效的分组方式，可选：{groupings}")
UNKNOWN_LABEL = Message(
    "the label '{label}' is not recorded; recorded labels (ledger.labels): {labels}",
    "未记录标签“{label}”；已记录的标签（ledger.labels）：{labels}",
)
TWO_CURRENCIES = Message(
    "the currency changed from {before} to {after} at {at} UTC; select a period before or after that",
    "货币在 {at}（UTC）由 {before} 改为 {after}；请选择此前或此后的时段",
)
INVALID_TIME = Message(
    "use a duration such as 24h, 7d or 4w, or a time such as 2026-11-01 or 2026-11-01T08:00Z",
    "请使用 24h、7d、4w 这样的时长，或 2026-11-01、2026-11-01T08:00Z 这样的时间",
)
SINCE_NOT_BEFORE_UNTIL = Message("since must be before until", "since 必须早于 until")
FILLED_BY_ANOTHER = Message(
    "another back-fill writes to this ledger; run it again when that has ended",
    "另一个回填正在写入该账本；请在其结束后重试",
)
FILL_WITHOUT_ENGINE = Message(
    "the past can only be read from an engine: set prometheus.url (--prometheus-url)",
    "只能从引擎读取过去的数据：请设置 prometheus.url（--prometheus-url）",
)
FILL_STEP = Message(
    "--step must be at least 1 s and at most the window ({window:g} s): time between two windows would be unknown",
    "--step 至少为 1 秒，且不超过窗口（{window:g} 秒）：否则两个窗口之间的时间未知",
)
FILL_STOPPED = Message(
    "stopped at {at} UTC after {count} failed cycles in a row; the next run continues there: {error}",
    "连续 {count} 个周期失败，已停在 {at}（UTC）；下次运行从此处继续：{error}",
)
