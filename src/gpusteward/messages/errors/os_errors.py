"""Reasons that the operating system gives, by error number. Others keep the system's own English text."""

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


def explain_os_error(error: OSError) -> Message | str:
    """The reason without paths and addresses, which may contain credentials."""
    if isinstance(error, socket.gaierror):
        return UNKNOWN_HOST
    return OS_ERRORS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
