"""An HTTP server of a test, on a free port and a thread of its own."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The endpoint at which `handler` is asked; each connection has a thread of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield "http://{}:{}".format(*server.server_address)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Serves every method with `serve`, logs nothing, and can end its connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def parse_request(self) -> bool:
        """Let `serve` answer, whatever the method is."""
        good = super().parse_request()
        setattr(self, f"do_{self.command}", self.serve)
        return good

    def serve(self) -> None:
        """Answer a request."""
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def hang_up(self, *, reset: bool = False) -> None:
        """End the connection."""
        self.close_connection = True
        if reset:  # closing with nothing lingering sends RST
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        else:
            with contextlib.suppress(OSError):  # the client was faster
                self.connection.shutdown(socket.SHUT_RDWR)
