"""A small web server on this machine, for tests that download something."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class LocalServer:
    """What the server answers by path, and which paths were asked for."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cut_off: bool = False  # break off in the middle of an answer

    def put(self, path: str, content: bytes) -> str:
        """Serve this content; return its address."""
        self.files[path] = content
        return self.address + path


@contextlib.contextmanager
def local_server() -> Iterator[LocalServer]:
    """Serve files from memory while the block runs; other paths are a 404."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served.asked.append(self.path)
            if self.path not in served.files:
                self.send_error(404)
                return
            content = served.files[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            half = len(content) // 2
            self.wfile.write(content[:half] if served.cut_off else content)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = LocalServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
