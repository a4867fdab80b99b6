"""Programs in place of kubectl, for what a real one does not show."""

import sys
from pathlib import Path

START = """import socket, sys
if sys.argv[1] != "proxy":
    print('{"contexts": [{"name": "a"}]}')
    sys.exit()
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2].partition("=")[2])
listener.listen()
print("Starting to serve on", sys.argv[2], flush=True)
"""
UNREACHABLE = f"""{START}
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    head = "HTTP/1.1 500 Internal Server Error", "Content-Type: text/plain", "Content-Length: 14", "", "dial tcp: lost"
    connection.sendall("\\r\\n".join(head).encode())
"""


def write_kubectl(folder: Path, program: str) -> None:
    path = folder / "kubectl"
    path.write_text(f"#!{sys._base_executable}\n{program}\n")  # type: ignore[attr-defined]
    path.chmod(0o755)
