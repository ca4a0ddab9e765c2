"""A server that records requests and answers each with an empty object."""
import contextlib
import dataclasses
import http.server
import threading


@dataclasses.dataclass
class Seen:
    method: str
    target: str
    headers: list
    body: bytes


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without buffering, the body would wait for the acknowledgement of the header segment (Nagle).
    wbufsize = -1

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # Python decodes headers as Latin-1; they are UTF-8.
        headers = [(name, value.encode("latin-1").decode()) for name, value in self.headers.items()]
        self.server.seen.append(Seen(self.command, self.path, headers, body))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"{}")

    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def recorder():
    """Runs one; yields its URL, and the list that grows with each request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.seen
    finally:
        server.shutdown()
        server.server_close()
