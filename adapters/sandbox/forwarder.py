"""Runs inside the sandbox: leads ports of 127.0.0.1 to sockets of the host, then becomes the program.

`python3 forwarder.py PORT=SOCKET... -- program arguments...`; port 0 is the proxy's. Stands alone (the
standard library of any Python from 3.8 on): this one file is put into the sandbox, where nothing else of ours is."""

import contextlib
import os
import socket
import sys
import threading

CHUNK = 1 << 16


def main() -> None:
    end = sys.argv.index("--")
    argv = sys.argv[end + 1 :]
    listeners = []
    for port, _, path in (door.partition("=") for door in sys.argv[1:end]):
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
        # Inherited by accepted connections: pieces of an answer are passed on at once.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listeners.append((listener, path))
        if port == "0":
            announce(listener.getsockname()[1])
    # Two forks: the program must not find a child that it has not started.
    if os.fork() == 0:
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            for listener, path in listeners[1:]:
                threading.Thread(target=serve, args=(listener, path), daemon=True).start()
            serve(*listeners[0])
        os._exit(0)
    os.wait()
    for listener, _ in listeners:
        listener.close()
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - to become the program is what it is for
    except OSError as error:
        sys.stderr.write(f"sandbox: {argv[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def announce(port: int) -> None:
    """Where the proxy is, in the variables that programs look at."""
    address = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    os.environ.update(dict.fromkeys(names, address))
    os.environ.update({name.lower(): address for name in names})
    os.environ.update({"NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1"})
    os.environ["NODE_USE_ENV_PROXY"] = "1"  # without it Node's fetch does not look at the others


def serve(listener: socket.socket, path: str) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=carry, args=(client, path), daemon=True).start()


def carry(client: socket.socket, path: str) -> None:
    proxy = socket.socket(socket.AF_UNIX)
    try:
        proxy.connect(path)
    except OSError:
        client.close()
        proxy.close()
        return
    back = threading.Thread(target=copy, args=(proxy, client), daemon=True)
    back.start()
    copy(client, proxy)
    back.join()
    client.close()
    proxy.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
