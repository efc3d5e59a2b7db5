"""Stands for ``python ARGUMENTS``, which a server of `forks` runs: ``python -I -S fork_client.py SOCKET ARGUMENTS``."""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    parts = [os.getcwd(), str(len(environment)), *environment, *sys.argv[2:]]
    request = os.fsencode("\0".join(parts))
    socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(request)
    answer = server.recv(1)
# Without an answer the process died.
sys.exit(answer[0] if answer else 255)
