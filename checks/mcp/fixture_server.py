"""An MCP server on stdin and stdout with everything that the server scenarios of the official conformance suite call.

It speaks the era that its client begins with: `initialize` (2025-11-25) or `server/discover` (2026-07-28). A tool that asks its caller is
written once: `Call.ask` sends requests in the old era, and ends the request with `input_required` in the new one, where the tool runs again
with all answers so far, which travel in the signed state.

usage: fixture_server.py [tasks]      tasks: also has the tools of the scenarios about tasks, which take seconds
"""
import hashlib
import hmac
import json
import queue
import secrets
import sys
import threading

sys.dont_write_bytecode = True
from fixture_entries import (  # noqa: E402
    PROMPTS, RESOURCES, TASK_TOOLS, TOOLS, Failure, fail, prompt_entry, read, text, tool_entry,
)

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
META = "io.modelcontextprotocol/"
INFO = {"name": "conformance-fixture", "version": "1.0.0"}
CAPABILITIES = {
    "tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True},
    "completions": {}, "logging": {},
}
# `Call.ask` needs the capability of the client that belongs to a method.
CAPABILITY_OF = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class InputRequired(Exception):
    """Ends a request of the new era that needs answers first."""

    def __init__(self, requests, state):
        super().__init__("input required")
        self.result = {"resultType": "input_required", "inputRequests": requests, "requestState": state}


class Server:
    def __init__(self, tools):
        self.tools = tools
        self.era = None
        self.capabilities = {}
        self.level = "info"
        self.key = secrets.token_bytes(32)
        self.writing = threading.Lock()
        self.running = {}  # id of a request -> set when it is cancelled
        self.questions = {}  # id of a request to the client -> where its answer goes
        self.subscriptions = {}  # id of a `subscriptions/listen` -> its filter
        self.added = {"tools": 0, "prompts": 0}

    def send(self, **message):
        with self.writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def run(self):
        for line in sys.stdin:
            message = json.loads(line)
            if "method" not in message:
                if waiting := self.questions.pop(message["id"], None):
                    waiting.put(message)
            elif "id" in message:
                self.running[message["id"]] = threading.Event()
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            elif message["method"] == "notifications/cancelled":
                id = message["params"]["requestId"]
                self.subscriptions.pop(id, None)
                if running := self.running.get(id):
                    running.set()

    def answer(self, message):
        id, method, params = message["id"], message["method"], message.get("params") or {}
        try:
            result = self.handle(id, method, params)
            if result is not None:
                self.send(id=id, result=self.complete(method, result))
        except InputRequired as required:
            self.send(id=id, result=required.result)
        except Failure as failure:
            self.send(id=id, error=failure.error)
        except Exception as error:  # A tool that fails answers `isError`; this is a fault of the fixture.
            self.send(id=id, error={"code": -32603, "message": repr(error)})
        finally:
            self.running.pop(id, None)

    def complete(self, method, result):
        if self.era == "legacy":
            return result
        cacheable = method == "server/discover" or method.endswith("/list") or method == "resources/read"
        hints = {"ttlMs": 0, "cacheScope": "private"} if cacheable else {}
        return {"resultType": "complete", **hints, **result}

    def handle(self, id, method, params):
        if method == "initialize":
            self.era, self.capabilities = "legacy", params.get("capabilities", {})
            return {"protocolVersion": VERSION["legacy"], "capabilities": CAPABILITIES, "serverInfo": INFO}
        if method == "server/discover":
            self.era = "modern"
            return {"supportedVersions": [VERSION["modern"]], "capabilities": CAPABILITIES, "_meta": {META + "serverInfo": INFO}}
        if method == "ping":
            return {}
        if method == "subscriptions/listen":
            self.subscriptions[id] = params["notifications"]
            return self.notify("subscriptions/acknowledged", {"notifications": params["notifications"]}, id)
        if method == "logging/setLevel":
            self.level = params["level"]
            return {}
        if method in ("resources/subscribe", "resources/unsubscribe"):
            read(params["uri"])
            return {}
        if method == "tools/list":
            added = [tool_entry(f"dynamic_tool_{number}", {}) for number in range(self.added["tools"])]
            return {"tools": [tool_entry(name, schema) for name, (schema, _) in self.tools.items()] + added}
        if method == "prompts/list":
            added = [{"name": f"dynamic_prompt_{number}", "description": "Added."} for number in range(self.added["prompts"])]
            return {"prompts": [prompt_entry(name, names) for name, (names, _) in PROMPTS.items()] + added}
        if method == "resources/list":
            return {"resources": [
                {"uri": uri, "name": uri.removeprefix("test://"), "description": "A resource.", "mimeType": mime_type}
                for uri, (mime_type, _) in RESOURCES.items()
            ]}
        if method == "resources/templates/list":
            template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
            return {"resourceTemplates": [template]}
        if method == "resources/read":
            return {"contents": [read(params["uri"])]}
        if method == "completion/complete":
            values = [value for value in ("test", "testing", "paris", "park") if value.startswith(params["argument"]["value"])]
            return {"completion": {"values": values, "total": len(values), "hasMore": False}}
        if method == "prompts/get":
            _, get = PROMPTS.get(params["name"]) or fail(-32602, "unknown prompt")
            messages = get(Call(self, id, params), **params.get("arguments", {}))
            return {"messages": [{"role": "user", "content": content} for content in messages]}
        if method == "tools/call":
            if params["name"].startswith("dynamic_tool_"):
                return {"content": [text("added")]}
            _, run = self.tools.get(params["name"]) or fail(-32602, "unknown tool")
            content = run(Call(self, id, params), **params.get("arguments", {}))
            return content if isinstance(content, dict) else {"content": content}
        fail(-32601, "Method not found")

    def notify(self, method, params=None, subscription=None):
        meta = {} if subscription is None else {"_meta": {META + "subscriptionId": subscription}}
        self.send(method="notifications/" + method, params={**(params or {}), **meta})

    def change(self, kind):
        """Adds an entry to a list."""
        self.added[kind] += 1
        if self.era == "legacy":
            return self.notify(f"{kind}/list_changed")
        for id, notifications in list(self.subscriptions.items()):
            if notifications.get(f"{kind}ListChanged"):
                self.notify(f"{kind}/list_changed", subscription=id)

    def request(self, method, params):
        """Asks the client, in the old era."""
        id, waiting = secrets.token_hex(8), queue.Queue()
        self.questions[id] = waiting
        self.send(id=id, method=method, params=params)
        return waiting


class Call:
    """A request of a client, for the tool or prompt that answers it."""

    def __init__(self, server, id, params):
        self.server, self.params, self.meta = server, params, params.get("_meta", {})
        self.cancelled = server.running[id]
        # In the old era they are those of the connection, which may be more than those of the caller.
        is_modern = server.era == "modern"
        self.capabilities = self.meta.get(META + "clientCapabilities", {}) if is_modern else server.capabilities
        self.known = self.opened_state() if is_modern else {}  # answers of the caller, by key

    def progress(self, progress, total):
        if "progressToken" in self.meta:
            self.server.notify("progress", {"progressToken": self.meta["progressToken"], "progress": progress, "total": total})

    def sleep(self, seconds):
        if self.cancelled.wait(seconds):
            fail(-32800, "cancelled")

    def log(self, level, data):
        least = self.server.level if self.server.era == "legacy" else self.meta.get(META + "logLevel")
        if least and LEVELS.index(level) >= LEVELS.index(least):
            self.server.notify("message", {"level": level, "logger": "fixture", "data": data})

    def ask(self, **requests):
        """Asks the caller for all of these at once: key -> (method, params). The answers, by key."""
        missing = {CAPABILITY_OF[method]: {} for method, _ in requests.values() if CAPABILITY_OF[method] not in self.capabilities}
        if missing:
            fail(-32021, "the client lacks a capability", {"requiredCapabilities": missing})
        if self.server.era == "legacy":
            waiting = {key: self.server.request(*request) for key, request in requests.items()}
            return {key: answer_of(queue.get(timeout=60)) for key, queue in waiting.items()}
        given = self.params.get("inputResponses") or {}
        self.known.update({key: answer for key, answer in given.items() if key in requests and fits(requests[key][0], answer)})
        open = {key: {"method": method, "params": params} for key, (method, params) in requests.items() if key not in self.known}
        if open:
            raise InputRequired(open, self.sealed_state())
        return {key: self.known[key] for key in requests}

    def sealed_state(self):
        state = json.dumps(self.known)
        return hmac.new(self.server.key, state.encode(), hashlib.sha256).hexdigest() + state

    def opened_state(self):
        sealed = self.params.get("requestState")
        if sealed is None:
            return {}
        seal, state = sealed[:64], sealed[64:]
        if not hmac.compare_digest(seal, hmac.new(self.server.key, state.encode(), hashlib.sha256).hexdigest()):
            fail(-32602, "the state was changed")
        return json.loads(state)


def answer_of(message):
    if "error" in message:
        fail(-32603, "the client answered with an error: " + message["error"]["message"])
    return message["result"]


def fits(method, answer):
    member = {"elicitation/create": "action", "sampling/createMessage": "content", "roots/list": "roots"}[method]
    return isinstance(answer, dict) and member in answer


if __name__ == "__main__":
    Server(TOOLS | TASK_TOOLS if "tasks" in sys.argv else TOOLS).run()
