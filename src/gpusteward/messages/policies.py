"""Policies: why a file or an annotation cannot be used, and what is done instead."""

from gpusteward.core.messages import Message

NOT_POLICY_HOURS = Message(
    "write hours such as 22:00-08:00 or mon-fri 09:00-18:00", "请写成 22:00-08:00 或 mon-fri 09:00-18:00 这样的时间段"
)
NO_BUDGET = Message(
    "limits.per_cycle 0 never allows the action; write a number above 0, or action: notify",
    "limits.per_cycle 为 0 时永远不会执行动作；请写大于 0 的数字，或写 action: notify",
)
POLICY_TWICE = Message(
    "policies: the name {name} is used twice; give each policy a name of its own",
    "policies：名称 {name} 出现了两次；请给每条策略不同的名称",
)
NO_POLICY_FILE = Message(
    "there is no policy file (reclaim.policy_file): nothing new is warned of or done; `gpusteward policies --example`"
    " prints one to begin with, and `policies: []` is how to act on nothing",
    "没有策略文件（reclaim.policy_file）：不会发出新的警告，也不会执行新的操作；`gpusteward policies --example` 会打印"
    "一份示例；不想执行任何操作请写 `policies: []`",
)
EMPTY_POLICY_FILE = Message(
    "{where}: the policy file is empty; write policies, or `policies: []` to act on nothing",
    "{where}：策略文件为空；请写入策略，不想执行任何操作请写 `policies: []`",
)
NO_VALUE = Message("the value is missing; write one, or leave the field out", "缺少值；请写上值，或删除这个字段")
EMPTY_MATCH = Message(
    'it is empty; write what it matches, or "*" for all, or leave it out',
    '内容为空；请写要匹配的内容，全部匹配请写 "*" 或删除这个字段',
)
INVALID_POLICY = Message("{path} ({where}): {problem}", "{path}（{where}）：{problem}")
UNKNOWN_POLICY_FIELD = Message("this field is not known{hint}", "没有这个字段{hint}")
FIELD_HINT = Message("; did you mean {nearest}?", "；是否想写 {nearest}？")
FIELD_LIST = Message("; the fields are {names}", "；可用的字段：{names}")
MISSING_POLICY_FIELD = Message("this field is required", "缺少这个必填字段")
NOT_A_POLICY_FILE = Message(
    "{where}: a policy file is a mapping with the key policies; see docs/reference/policies.md",
    "{where}：策略文件应为带有 policies 键的映射；参见 docs/reference/policies.md",
)
WRITE_FIELD = Message("{value} cannot be used: {reason}", "不能使用 {value}：{reason}")

NOT_A_KEEP_RULE = Message(
    "must be one of {names}, or numbers such as {{window: 90m, headroom: 1.25}}",
    "必须是 {names} 之一，或一组数值，例如 {{window: 90m, headroom: 1.25}}",
)
BAD_KEEP = Message(
    "annotation {name}: {value} is neither true, false nor a date such as 2027-01-31; the workload is kept until it is"
    " corrected",
    "注解 {name}：{value} 既不是 true、false，也不是 2027-01-31 这样的日期；在更正之前，该工作负载会被保留",
)
BAD_DURATION = Message(
    "annotation {name}: {value}: {problem}; the workload is kept until it is corrected",
    "注解 {name}：{value}：{problem}；在更正之前，该工作负载会被保留",
)
BAD_ACTION = Message(
    "annotation {name}: {value} is none of {words}; only notices are sent until it is corrected",
    "注解 {name}：{value} 不是以下之一：{words}；在更正之前只发送通知",
)
BAD_WARNINGS = Message(
    "annotation {name}: {value} is not a number from 1 to {most}; {most} {most:|warning is|warnings are} "
    "sent until it is corrected",
    "注解 {name}：{value} 不是 1 到 {most} 的数字；在更正之前会发送 {most} 次警告",
)
BAD_INTERCHANGEABLE = Message(
    "annotation {name}: {value} is neither true nor false; the replicas are not treated as interchangeable",
    "注解 {name}：{value} 既不是 true 也不是 false；不会把这些副本视为可互换",
)
LESS_CAREFUL = Message(
    "{origin} {name} is ignored: an annotation can only make the policy more careful",
    "已忽略 {origin} {name}：注解只能让策略更谨慎",
)
NOT_OPTED_IN = Message(
    "lowering the replicas stays advice: nobody said that they are interchangeable (annotation {name}, or"
    " interchangeable: true in the policy)",
    "减少副本只作为建议：没有人声明这些副本可互换（注解 {name}，或策略中的 interchangeable: true）",
)
NOT_A_POOL = Message(
    "lowering the replicas is not possible for the kind {kind}: its replicas have an identity each",
    "无法对类型 {kind} 减少副本：它的每个副本都有自己的身份",
)

ABOUT_KEEP = Message(
    "`true`: never touch it. A date (`2027-01-31`, until its end in UTC) or a time: not before. `false`: no wish.",
    "`true`：永远不要动它。日期（`2027-01-31`，到该日 UTC 结束为止）或时间：在此之前不要动。`false`：没有要求。",
)
ABOUT_WINDOW = Message("A longer idle time than that of the policy, such as `8h`.", "比策略更长的空闲时间，例如 `8h`。")
ABOUT_GRACE = Message("A longer grace period, such as `2h`.", "更长的宽限期，例如 `2h`。")
ABOUT_ACTION = Message(
    "A more careful action: notify, webhook, scale-to-keep, suspend, in this order.",
    "更谨慎的动作，依次为：notify、webhook、scale-to-keep、suspend。",
)
ABOUT_WARNINGS = Message("More warnings, up to 10.", "更多次警告，最多 10 次。")
ABOUT_INTERCHANGEABLE = Message(
    "`true`: any replica can serve any request, so that replicas that are not needed may be given back.",
    "`true`：任何副本都能处理任何请求，因此可以归还不需要的副本。",
)

POLICY_REFUSED = Message("the policy cannot be used: {reason}", "无法使用该策略：{reason}")
REPLAY_WITHOUT_BUDGETS = Message(
    "Budgets, snoozes, annotations and pressure of pending pods are not replayed.",
    "预算、静默、注解以及等待中 Pod 的压力不参与回放。",
)
REPLAY_WITHOUT_LABELS = Message(
    "Labels and priority classes of the past are not recorded: policies that match by them match nothing here.",
    "历史标签和优先级类没有记录：按它们匹配的策略在回放中不会匹配任何工作负载。",
)
