"""Which key does what: for the screen, its footer and its help."""

from typing import NamedTuple

from gpusteward.core.messages import Message


class Key(NamedTuple):
    """One thing a person can do, and the keys for it; the first is the one the footer names."""

    keys: str  # as Textual names them
    shown: str  # as people name them
    action: str
    about: Message
    short: Message | None = None  # for the footer
    is_prior: bool = False  # before the widget that has the focus


KEYS = (
    Key("question_mark,f1,h", "? F1", "help", Message("this help", "本帮助"), Message("Help", "帮助")),
    Key("slash,f3", "/ F3", "search", Message("search names", "搜索名称"), Message("Search", "搜索")),
    Key("f,f4", "f F4", "filter", Message("by activity", "按活动筛选"), Message("Filter", "筛选")),
    Key("s,f6", "s F6", "sort", Message("sort by the next column", "按下一列排序"), Message("Sort", "排序")),
    Key("S,i", "S i", "reverse", Message("turn the order around", "反转排序")),
    Key("r,f5", "r F5", "refresh", Message("read again now", "立即刷新"), Message("Refresh", "刷新")),
    Key("tab", "Tab", "next_view(1)", Message("next view", "下一视图"), Message("View", "视图"), is_prior=True),
    Key("shift+tab", "Shift-Tab", "next_view(-1)", Message("view before", "上一视图"), is_prior=True),
    Key("1", "1", "view('gpus')", Message("GPUs", "GPU")),
    Key("2", "2", "view('workloads')", Message("workloads", "工作负载")),
    Key("3", "3", "view('tenants')", Message("tenants: namespaces", "租户（命名空间）")),
    Key("j,down", "j Down", "move(1)", Message("down", "向下")),
    Key("k,up", "k Up", "move(-1)", Message("up", "向上")),
    Key("ctrl+f,pagedown", "PgDn", "page(1)", Message("a page down", "下一页")),
    Key("ctrl+b,pageup", "PgUp", "page(-1)", Message("a page up", "上一页")),
    Key("g,home", "g Home", "edge(-1)", Message("first row", "首行")),
    Key("G,end", "G End", "edge(1)", Message("last row read", "已读取的末行")),
    Key("enter,l", "Enter", "open", Message("open it", "打开"), Message("Open", "打开")),
    Key("escape", "Esc", "step_back", Message("back", "返回")),
    Key("t", "t", "span", Message("opened: 1h, 6h, 24h, 7d", "打开后：1h、6h、24h、7d")),
    Key("colon", ":", "command", Message("gpus, tenants, sort score", "gpus、tenants、sort score")),
    Key("q,f10,ctrl+c", "q F10", "quit", Message("quit", "退出"), Message("Quit", "退出")),
)
