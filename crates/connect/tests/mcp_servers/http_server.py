"""An MCP server over streamable HTTP for tests, of both eras. Its arguments and the names of its tools select what it does wrong.

Prints its port."""

import itertools
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

flags = set(sys.argv[1:])
lock = threading.Condition()
events = []  # what happened, in order
replies = {}  # id of a question -> reply
resumed = {}  # event id -> answer
sessions = {}  # id of a session -> number of calls of `count`
hung = set()  # sessions whose requests get no answer
numbers = itertools.count(1)
listed = next((flag[6:].split(",") for flag in flags if flag.startswith("tools=")), [])


def note(event):
    with lock:
        events.append(event)
        lock.notify_all()


def text(id, value):
    value = value if isinstance(value, str) else json.dumps(value)
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": value}]}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self, status, content, kind="application/json", **headers):
        content = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def busy(self, id, status):
        if "busy-json" in flags:
            error = {"code": -32000, "message": "later"}
            return self.body(status, {"jsonrpc": "2.0", "id": id, "error": error}, Retry_After="7")
        self.body(status, "later", "text/plain", Retry_After="7")

    def stream(self, **headers):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.close_connection = True

    def event(self, message=None, id=None, retry=None, name=None):
        if name is not None:
            self.wfile.write(f"event: {name}\n".encode())
        if id is not None:
            self.wfile.write(f"id: {id}\n".encode())
        if retry is not None:
            self.wfile.write(f"retry: {retry}\n".encode())
        data = message if isinstance(message, str) else json.dumps(message) if message is not None else ""
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def resume_at_once(self, count):
        self.event(id=f"again-{count}")
        time.sleep(0.05)  # The delay arrives apart from the id.
        self.event(retry=0)

    def refused(self):
        if "auth" in flags and self.headers.get("Authorization") != "Bearer s3cr3t-token":
            self.body(401, "who are you?", "text/plain", WWW_Authenticate="Bearer")
            return True
        session = self.headers.get("Mcp-Session-Id")
        if session is not None and session not in sessions:
            self.body(404, "no such session", "text/plain")
            return True
        return False

    def wait_until_closed(self):
        try:
            while True:
                with lock:
                    lock.wait(0.05)
                self.wfile.write(b": alive\n\n")
                self.wfile.flush()
        except OSError:
            pass

    def wait_without_answer(self):
        with lock:
            lock.wait_for(lambda: False, timeout=20)
        self.close_connection = True

    def do_GET(self):
        if "http-sse" in flags:
            self.stream()
            self.event("/messages?session=1", name="endpoint")
            return self.wait_until_closed()
        if self.refused():
            return
        last = self.headers.get("Last-Event-ID")
        if last is not None:
            note(f"resumed {last}")
            self.stream()
            if last.startswith("again-"):
                return self.resume_at_once(int(last[6:]) + 1)
            return self.event(resumed[last])
        if "busy-get" in flags and "busy GET" not in events:
            note("busy GET")
            return self.body(429, "later", "text/plain", Retry_After="0")
        if "no-get-route" in flags:
            note("no such route")
            return self.body(404, "")
        if "no-get" in flags:
            note("refused a stream")
            return self.body(405, "")
        if "broken-get" in flags:
            note("broke a stream")
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b": broken\n\n")
            self.close_connection = True
            return
        self.stream()
        if "huge-get" in flags:
            self.event("x" * (2 << 20))
        self.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        self.event({"jsonrpc": "2.0", "id": "lost", "method": "elicitation/create", "params": {"message": "?"}})
        self.wait_until_closed()

    def do_DELETE(self):
        note("deleted " + self.headers.get("Mcp-Session-Id"))
        self.body(200, "")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "http-sse" in flags:
            return self.body(405, "Method Not Allowed", "text/plain")
        if self.refused():
            return
        if self.headers.get("Mcp-Session-Id") in hung:
            return self.wait_without_answer()
        id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if "silent" in flags:
            return self.wait_without_answer()
        if method is None:
            with lock:
                replies[id] = message.get("result", message.get("error"))
                events.append(f"reply to {id}")
                lock.notify_all()
            return self.body(202, "")
        if id is None:
            note(f"{method} {params.get('requestId', '')}".strip())
            if "busy-initialized" in flags:
                return self.body(503, "later", "text/plain", Retry_After="7")
            return self.body(202, "")
        if "busy" in flags or method in ["ping", "tools/list"] and "get busy" in events:
            note(f"busy {method}")
            return self.busy(id, 503)
        if "busy-list" in flags and method == "tools/list" and "busy tools/list" not in events:
            note(f"busy {method}")
            return self.body(503, "later", "text/plain", Retry_After="1")
        if method == "initialize":
            with lock:
                session = f"session-{next(numbers)}"
                sessions[session] = 0
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "test", "version": "1"}}
            answer = {"jsonrpc": "2.0", "id": id, "result": result}
            if "stream-handshake" in flags:
                self.stream(Mcp_Session_Id=session)
                self.event("", id="e0", retry=10)
                return self.event(answer)
            return self.body(200, answer, Mcp_Session_Id=session)
        if method == "server/discover":
            if "legacy" in flags:
                return self.body(400, "Bad Request: no session", "text/plain")
            if "legacy-json" in flags:
                return self.body(400, {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "no session"}})
            result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
            return self.body(200, {"jsonrpc": "2.0", "id": id, "result": {**result, "ttlMs": 0, "cacheScope": "private"}})
        if method == "ping":
            return self.body(200, {"jsonrpc": "2.0", "id": id, "result": {}})
        if method == "tools/list":
            schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
            return self.body(200, {"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "echo", "inputSchema": schema}, {"name": "odd"}, *({"name": name} for name in listed)]}})
        if method == "subscriptions/listen":
            subscription = {"io.modelcontextprotocol/subscriptionId": id}
            self.stream()
            self.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"_meta": subscription, "notifications": params["notifications"]}})
            self.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": subscription}})
            return self.wait_until_closed()
        self.call(id, params)

    def call(self, id, params):
        name, arguments, token = params["name"], params.get("arguments", {}), params.get("_meta", {}).get("progressToken")
        if name == "echo":
            self.body(200, text(id, {key.lower(): value for key, value in self.headers.items()}))
        elif name == "report":
            with lock:
                lock.wait_for(lambda: arguments.get("until", "") in [*events, ""], timeout=20)
                self.body(200, text(id, events))
        elif name == "count":
            session = self.headers["Mcp-Session-Id"]
            with lock:
                sessions[session] += 1
            self.body(200, text(id, f"{session}: {sessions[session]}"))
        elif name == "work":
            self.stream()
            for step in range(1, 4):
                self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 3}})
            self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "of " + arguments["who"]}})
            self.event(text(id, "done"))
        elif name == "elicit":
            self.stream()
            self.event({"jsonrpc": "2.0", "id": "q-" + arguments["who"], "method": "elicitation/create", "params": {"message": arguments["who"]}})
            with lock:
                lock.wait_for(lambda: "q-" + arguments["who"] in replies, timeout=20)
            self.event(text(id, replies["q-" + arguments["who"]]))
        elif name == "input":
            mark = arguments["mark"]
            self.stream()
            for step in range(3):
                self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step, "message": mark}})
                self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": mark}})
            self.event({"jsonrpc": "2.0", "id": "q-" + mark, "method": "elicitation/create", "params": {"message": mark}})
            with lock:
                lock.wait_for(lambda: "q-" + mark in replies, timeout=20)
            self.event(text(id, {"responses": {"form": replies["q-" + mark]}}))
        elif name == "wait":
            note("waiting")
            self.stream()
            self.wait_until_closed()
            note("closed")
        elif name == "wait_without_response":
            note("waiting")
            with lock:
                lock.wait_for(lambda: "stop" in events, timeout=20)
        elif name == "be_busy":
            self.busy(id, arguments["status"])
        elif name == "get_busy":
            note("get busy")
            self.body(200, text(id, "busy"))
        elif name == "lone_surrogate":
            answer = '{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"cut \\ud83d here"}}' % id
            self.body(arguments["status"], answer)
        elif name == "resume_same_id":
            # Its stream ends while another one has an event of the same id.
            resumed["same"] = text(id, "resumed")
            self.stream()
            self.event(id="same", retry=200)
            with lock:
                lock.wait_for(lambda: "holding" in events, timeout=20)
        elif name == "hold_same_id":
            self.stream()
            self.event(id="same")
            note("holding")
            with lock:
                lock.wait_for(lambda: "resumed same" in events, timeout=20)
            self.event(text(id, "held"))
        elif name == "resume":
            resumed["r1"] = text(id, "resumed")
            self.stream()
            self.event(id="r1", retry=10)
        elif name == "end_early":
            self.stream()
            self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        elif name == "fail":
            self.body(arguments.get("status", 200), {"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "it failed"}})
        elif name == "status":
            location = {"Location": arguments["location"]} if "location" in arguments else {}
            self.body(arguments["status"], "<html>broken</html>", "text/html", Retry_After="7", **location)
        elif name == "session":
            self.body(200, text(id, self.headers["Mcp-Session-Id"]))
        elif name == "hang_session":
            hung.add(self.headers["Mcp-Session-Id"])
            self.body(200, text(id, "hung from now on"))
        elif name == "expire":
            sessions.clear()
            self.body(200, text(id, "expired"))
        elif name == "accepted":
            self.body(202, "")
        elif name == "html":
            self.body(200, "<html></html>", "text/html")
        elif name == "junk":
            self.body(200, "Listening")
        elif name == "both":
            self.body(200, {**text(id, "x"), "error": {"code": 1, "message": "x"}})
        elif name == "both_event":
            self.stream()
            self.event({**text(id, "x"), "error": {"code": 1, "message": "x"}})
        elif name == "doubled_id":
            self.body(200, '{"id":4711,' + json.dumps(text(id, "x"))[1:])
        elif name == "doubled_id_event":
            self.stream()
            self.event('{"id":4711,' + json.dumps(text(id, "x"))[1:])
        elif name == "twice":
            self.body(200, [text(id, "first"), text(id, "second")])
        elif name == "twice_event":
            self.stream()
            self.event(text(id, "first"))
            self.event(text(id, "second"))
        elif name == "same_question":
            # The id of a question that is still open.
            self.stream()
            for _ in range(2):
                self.event({"jsonrpc": "2.0", "id": "same", "method": "elicitation/create", "params": {"message": "?"}})
            self.wait_until_closed()
        elif name == "resume_at_once":
            # Each resumed stream ends at once and asks to be resumed at once.
            self.stream()
            self.resume_at_once(0)
        elif name == "junk_event":
            self.stream()
            self.event("Listening")
        elif name == "wrong_id":
            self.body(200, text(4711, "wrong"))
        elif name == "wrong_id_event":
            self.stream()
            self.event(text(4711, "wrong"))
        elif name == "huge":
            self.body(200, text(id, "x" * (2 << 20)))
        elif name == "huge_event":
            self.stream()
            self.event(text(id, "x" * (2 << 20)))
        elif name == "broken":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.close_connection = True


port = next((int(flag[5:]) for flag in flags if flag.startswith("port=")), 0)
ThreadingHTTPServer.request_queue_size = 128  # Connections beyond it wait for seconds.
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
server.daemon_threads = True
server.handle_error = lambda *_: None  # Clients go away.
print(server.server_address[1], flush=True)
server.serve_forever()
