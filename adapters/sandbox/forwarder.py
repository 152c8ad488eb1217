"""Runs inside the sandbox: leads 127.0.0.1 to the proxy's socket, then becomes the program.

`python3 forwarder.py SOCKET program arguments...`. Stands alone (the standard library of any Python from 3.8 on): this
one file is put into the sandbox, where nothing else of ours is."""

import contextlib
import os
import socket
import sys
import threading

CHUNK = 1 << 16


def main() -> None:
    path, argv = sys.argv[1], sys.argv[2:]
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    # Two forks: the program must not find a child that it has not started.
    if os.fork() == 0:
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            serve(listener, path)
        os._exit(0)
    os.wait()
    listener.close()
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    os.environ.update(dict.fromkeys(names, address))
    os.environ.update({name.lower(): address for name in names})
    os.environ.update({"NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1"})
    os.environ["NODE_USE_ENV_PROXY"] = "1"  # without it Node's fetch does not look at the others
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - to become the program is what it is for
    except OSError as error:
        sys.stderr.write(f"sandbox: {argv[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


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
