"""Which key does what: for the screen, its footer and its help."""

from typing import NamedTuple

from gpusteward.cli.languages import Said


class Key(NamedTuple):
    """One thing a person can do, and the keys for it; the first is the one the footer names."""

    keys: str  # as Textual names them
    shown: str  # as people name them
    action: str
    about: Said
    short: Said | None = None  # for the footer
    is_prior: bool = False  # before the widget that has the focus


KEYS = (
    Key("question_mark,f1,h", "? F1", "help", Said("this help", "本帮助"), Said("Help", "帮助")),
    Key("slash,f3", "/ F3", "search", Said("search names", "搜索名称"), Said("Search", "搜索")),
    Key("f,f4", "f F4", "filter", Said("by activity", "按活动筛选"), Said("Filter", "筛选")),
    Key("s,f6", "s F6", "sort", Said("sort by the next column", "按下一列排序"), Said("Sort", "排序")),
    Key("S,i", "S i", "reverse", Said("turn the order around", "反转排序")),
    Key("r,f5", "r F5", "refresh", Said("read again now", "立即刷新"), Said("Refresh", "刷新")),
    Key("tab", "Tab", "next_view(1)", Said("next view", "下一视图"), Said("View", "视图"), is_prior=True),
    Key("shift+tab", "Shift-Tab", "next_view(-1)", Said("view before", "上一视图"), is_prior=True),
    Key("1", "1", "view('gpus')", Said("GPUs", "GPU")),
    Key("2", "2", "view('workloads')", Said("workloads", "工作负载")),
    Key("3", "3", "view('tenants')", Said("tenants: namespaces", "租户（命名空间）")),
    Key("j,down", "j Down", "move(1)", Said("down", "向下")),
    Key("k,up", "k Up", "move(-1)", Said("up", "向上")),
    Key("ctrl+f,pagedown", "PgDn", "page(1)", Said("a page down", "下一页")),
    Key("ctrl+b,pageup", "PgUp", "page(-1)", Said("a page up", "上一页")),
    Key("g,home", "g Home", "edge(-1)", Said("first row", "首行")),
    Key("G,end", "G End", "edge(1)", Said("last row read", "已读取的末行")),
    Key("enter,l", "Enter", "open", Said("open it", "打开"), Said("Open", "打开")),
    Key("escape", "Esc", "step_back", Said("back", "返回")),
    Key("t", "t", "span", Said("opened: 1h, 6h, 24h, 7d", "打开后：1h、6h、24h、7d")),
    Key("colon", ":", "command", Said("gpus, tenants, sort score", "gpus、tenants、sort score")),
    Key("q,f10,ctrl+c", "q F10", "quit", Said("quit", "退出"), Said("Quit", "退出")),
)
