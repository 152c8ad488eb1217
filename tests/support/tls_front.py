"""TLS in front of a server that has none: what comes in is passed on as it is."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def tls_front(context: ssl.SSLContext, port: int) -> Iterator[int]:
    """The port to connect to instead of `port` on loopback. Ends when its connections do."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, context, port), daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        listener.close()


def _serve(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with suppress(OSError):
        while True:
            raw, _ = listener.accept()
            with suppress(OSError), context.wrap_socket(raw, server_side=True) as near:
                _talk(near, port)


def _talk(near: ssl.SSLSocket, port: int) -> None:
    """A question, then its answer, as Redis clients that do not pipeline speak."""
    with socket.create_connection(("127.0.0.1", port)) as far:
        while question := near.recv(1 << 16):
            far.sendall(question)
            near.sendall(far.recv(1 << 16))
