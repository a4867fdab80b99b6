"""The analyzer as a program.

serve.py          socket, HTTP server, signals
http_server.py    uvicorn with limits of connections and TLS
listen_socket.py  its socket, opened before the other libraries are loaded
"""
