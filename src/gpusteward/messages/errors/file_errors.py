"""Why a file cannot be read: of settings, and of policies, whose errors people read in the web UI."""

from gpusteward.core.messages import Message

NOT_YAML = Message("{where} is not YAML: {reason}", "{where}不是有效的 YAML（{reason}）")
NESTED_TOO_DEEPLY = Message("nested too deeply", "嵌套过深")
YAML_TOO_LARGE = Message("too large", "过大")
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
NESTED_TOO_DEEPLY = Message("nested too deeply", "嵌套过深")
YAML_TOO_LARGE = Message("too large", "过大")
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
YAML_TOO_LARGE = Message("too large", "过大")
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
YAML_KEY_TWICE = Message("the key {key} is written twice", "键 {key} 写了两次")
UNREADABLE_YAML = Message("unreadable", "无法解析")
NOT_A_SECTION = Message("{where}: expected keys with values, found {found}", "{where}：应为键值对，实际为{found}")
SECTION_WITH_ORIGIN = Message("{path} ({origin})", "{path}（{origin}）")
A_LIST = Message("a list", "列表")
A_SINGLE_VALUE = Message("a single value", "单个值")
NOT_UTF8 = Message(
    "{path} is not UTF-8 text: {reason} at byte {byte}", "{path} 不是 UTF-8 文本：第 {byte} 字节，{reason}"
)
UNREADABLE_YAML = Message("unreadable", "无法解析")
NOT_A_SECTION = Message("{where}: expected keys with values, found {found}", "{where}：应为键值对，实际为{found}")
SECTION_WITH_ORIGIN = Message("{path} ({origin})", "{path}（{origin}）")
A_LIST = Message("a list", "列表")
A_SINGLE_VALUE = Message("a single value", "单个值")
NOT_UTF8 = Message(
    "{path} is not UTF-8 text: {reason} at byte {byte}", "{path} 不是 UTF-8 文本：第 {byte} 字节，{reason}"
)
NOT_UTF8 = Message(
    "{path} is not UTF-8 text: {reason} at byte {byte}", "{path} 不是 UTF-8 文本：第 {byte} 字节，{reason}"
)
FILE_UNREADABLE = Message(
    "{path} cannot be read: {reason}; check {setting}", "无法读取 {path}：{reason}；请检查 {setting}"
)
