"""Why files cannot be used, and the reasons that the operating system gives, by error number.

Other errors of files and settings are English, where they are raised; policies are written by people who read the web
UI, and errors of their files are shown there.
"""

import errno
import socket
from collections.abc import Mapping

from gpusteward.core.messages import Message

OS_ERRORS: Mapping[int, Message] = {
    errno.ECONNREFUSED: Message("connection refused", "连接被拒绝"),
    errno.ECONNRESET: Message("connection reset by peer", "连接被对方重置"),
    errno.EPIPE: Message("broken pipe", "管道已断开"),
    errno.ETIMEDOUT: Message("connection timed out", "连接超时"),
    errno.EHOSTUNREACH: Message("no route to host", "没有到主机的路由"),
    errno.ENETUNREACH: Message("network is unreachable", "网络不可达"),
    errno.EADDRINUSE: Message("address already in use", "地址已被占用"),
    errno.ENOENT: Message("no such file or directory", "文件或目录不存在"),
    errno.EACCES: Message("permission denied", "权限不足"),
    errno.EPERM: Message("operation not permitted", "操作不被允许"),
    errno.EISDIR: Message("is a directory", "是一个目录"),
    errno.ENOTDIR: Message("not a directory", "不是目录"),
    errno.ENOSPC: Message("no space left on device", "磁盘空间不足"),
    errno.EROFS: Message("read-only file system", "文件系统只读"),
}
UNKNOWN_HOST = Message("the host name cannot be resolved", "无法解析主机名")

NOT_UTF8 = Message(
    "{path} is not UTF-8 text: {reason} at byte {byte}", "{path} 不是 UTF-8 文本：第 {byte} 字节，{reason}"
)
FILE_UNREADABLE = Message(
    "{path} cannot be read: {reason}; check {setting}", "无法读取 {path}：{reason}；请检查 {setting}"
)
NOT_YAML = Message("{where} is not YAML: {reason}", "{where}不是有效的 YAML（{reason}）")
NESTED_TOO_DEEPLY = Message("nested too deeply", "嵌套过深")
YAML_TOO_LARGE = Message("too large", "过大")
YAML_ALIASES = Message(
    "anchors with aliases (&name, *name) are not accepted here", "此处不接受锚点和别名（&name、*name）"
)
YAML_KEY_TWICE = Message("the key {key} is written twice", "键 {key} 写了两次")
UNREADABLE_YAML = Message("unreadable", "无法解析")


def explain_os_error(error: OSError) -> Message | str:
    """The reason without paths and addresses, which may contain credentials."""
    if isinstance(error, socket.gaierror):
        return UNKNOWN_HOST
    return OS_ERRORS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
