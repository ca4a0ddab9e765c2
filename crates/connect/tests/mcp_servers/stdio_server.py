"""An MCP server over stdio for tests, of both eras. Its arguments and the names of its tools select what it does wrong."""

import json
import os
import subprocess
import sys
import time

flags = set(sys.argv[1:])
cancelled = []
questions = {}  # id of a question -> id of the call that asks
answers = []
calls = []
watched = set()  # URIs of resources whose changes are reported
resources = ["test://a", "test://b", "test://c"]
repeated = {}  # id of a call -> how many answers it waits for
lists = []  # ids of requests for the list
late = []  # messages that are sent when stdin is closed
count = 0


def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def text(id, value):
    value = value if isinstance(value, str) else json.dumps(value)
    send(id=id, result={"content": [{"type": "text", "text": value}]})


def notify(method, **params):
    send(method="notifications/" + method, params=params)


def ask(id, method, params):
    question = f"q{len(questions)}"
    questions[question] = id
    send(id=question, method=method, params=params)


FORM = {"message": "Which city?", "requestedSchema": {"type": "object", "properties": {"city": {"type": "object"}}}}


def call(id, params):
    global count
    name, arguments, meta = params["name"], params.get("arguments", {}), params.get("_meta", {})
    token = meta.get("progressToken")
    if name == "echo":
        text(id, {"arguments": arguments, "meta": meta})
    elif name == "odd":
        write('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"video","x":1.10}],"extra":"kept"}}\n' % id)
    elif name == "work":
        for step in range(1, 4):
            notify("progress", progressToken=token, progress=step, total=3, message=f"step {step}")
        notify("message", level="info", logger="worker", data="log line with " + os.environ.get("API_TOKEN", "nothing"))
        notify("progress", progressToken=9999, progress=1)
        text(id, "done")
    elif name == "append":
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(f"{arguments['number']}\n")
        text(id, arguments["number"])
    elif name == "flood":
        for number in range(arguments["count"]):
            notify("message", level="info", data=number)
            notify("progress", progressToken=token, progress=number)
            notify("tools/list_changed")
        text(id, "flooded")
    elif name == "touch_resource":
        if arguments["uri"] in watched:
            notify("resources/updated", uri=arguments["uri"])
        text(id, sorted(watched))
    elif name == "add_resource":
        resources.append(arguments["uri"])
        notify("resources/list_changed")
        text(id, "added")
    elif name == "hang":
        sys.stderr.write("hanging\n")
    elif name == "report":
        text(id, {"cancelled": cancelled, "answers": answers, "lists": len(lists)})
    elif name == "late":
        for other in cancelled:
            text(other, "late")
        text(id, "in time")
    elif name == "lone_surrogate":
        content = '{"content":[{"type":"text","text":"cut \\ud83d here"}]}'
        failure = '{"code":-32000,"message":"cut \\ud83d here"}'
        answer = f'"error":{failure}' if arguments.get("fails") else f'"result":{content}'
        write('{"jsonrpc":"2.0","id":%d,%s}\n' % (id, answer))
    elif name == "fail":
        send(id=id, error={"code": arguments["code"], "message": "it failed", "data": {"why": 1}})
    elif name == "fail_without_id":
        send(id=None, error={"code": -32603, "message": "it failed"})
    elif name == "elicit":
        ask(id, "elicitation/create", FORM)
    elif name == "input" and "inputResponses" not in params:
        asked = {"form": {"method": "elicitation/create", "params": {"message": arguments["mark"]}}}
        if "sample" in arguments:
            asked["model"] = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        if "roots" in arguments:
            asked["roots"] = {"method": "roots/list"}
        send(id=id, result={"resultType": "input_required", "inputRequests": asked, "requestState": "state of " + arguments["mark"]})
    elif name == "input":
        for step in range(3):
            notify("progress", progressToken=token, progress=step, message=arguments["mark"])
            notify("message", level="info", data=arguments["mark"])
        text(id, {"responses": params["inputResponses"], "state": params["requestState"]})
    elif name == "input_forever":
        calls.append(name)
        send(id=id, result={"resultType": "input_required", "requestState": str(len(calls))})
    elif name == "capabilities":
        text(id, meta.get("io.modelcontextprotocol/clientCapabilities"))
    elif name == "visit":
        calls.append(name)
        if len(calls) % 2:
            page = {"mode": "url", "elicitationId": "e1", "url": "https://example.org/login", "message": "Log in first"}
            return send(id=id, error={"code": -32042, "message": "login needed", "data": {"elicitations": [page]}})
        text(id, "visited")
    elif name == "elicit_url":
        ask(id, "elicitation/create", {"mode": "url", "elicitationId": "e1", "url": "https://example.org", "message": "Open it"})
    elif name == "elicit_often":
        answers.clear()
        for _ in range(arguments["count"]):
            ask(id, "elicitation/create", FORM)
        repeated[id] = arguments["count"]
    elif name == "sample":
        ask(id, "sampling/createMessage", {"messages": [], "maxTokens": 1})
    elif name == "roots":
        ask(id, "roots/list", {})
    elif name == "ping":
        ask(id, "ping", {})
    elif name == "pid":
        text(id, str(os.getpid()))
    elif name == "count":
        count += 1
        text(id, str(count))
    elif name == "environment":
        text(id, sorted(os.environ))
    elif name == "ask_forever":
        for number in range(arguments["count"]):
            send(id=number, method="ping")
    elif name == "stop_reading":
        sys.stderr.write("not reading\n")
        subprocess.run(["sleep", "600"])
    elif name == "close_stdin":
        os.close(0)
        subprocess.run(["sleep", "600"])
    elif name == "close_stdout":
        os.close(1)
        subprocess.run(["sleep", "600"])
    # Violations.
    elif name == "exit":
        sys.stderr.write("fatal: out of tea\n")
        sys.exit(3)
    elif name == "answer_and_exit":
        text(id, "bye")
        sys.exit(0)
    elif name == "junk":
        write("Listening on port 80\n")
    elif name == "bytes":
        os.write(1, b"\xff\xfe\n")
    elif name == "half":
        write('{"jsonrpc":"2.0","id":1,"resu')
        sys.exit(0)
    elif name == "both":
        send(id=id, result={}, error={"code": 1, "message": "x"})
    elif name == "twice":
        text(id, "first")
        text(id, "second")
    elif name == "wrong_id":
        text(4711, "wrong")
    elif name == "text_id":
        text(str(id), "text id")
    elif name == "huge":
        chunk = "x" * 65536
        write('{"jsonrpc":"2.0","id":%d,"result":"' % id)
        for _ in range(arguments["mebibytes"] * 16):
            write(chunk)
        write('"}\n')
    elif name == "same_question":
        ask(id, "elicitation/create", FORM)
        send(id="q0", method="elicitation/create", params=FORM)
    else:
        send(id=id, error={"code": -32602, "message": "unknown tool"})


CAPABILITIES = {"tools": {"listChanged": True}, "logging": {}}
if "lists" in flags:
    CAPABILITIES["resources"] = {"subscribe": True, "listChanged": True}
    CAPABILITIES["prompts"] = {"listChanged": True}
    CAPABILITIES["completions"] = {}


def handle_lists(id, method, params):
    """What a server has besides tools."""
    if "silent-lists" in flags:
        return
    if method == "prompts/list":
        arguments = [{"name": "who", "required": True}]
        send(id=id, result={"prompts": [{"name": "greet", "description": "Greets.", "arguments": arguments}, 7]})
    elif method == "prompts/get":
        content = {"type": "text", "text": "Hello " + params["arguments"]["who"]}
        send(id=id, result={"messages": [{"role": "user", "content": content}], "_meta": {}})
    elif method == "resources/list":
        page = int(params.get("cursor") or 0)
        following = {"nextCursor": str(page + 1)} if page + 1 < len(resources) else {}
        send(id=id, result={"resources": [{"uri": resources[page], "name": f"r{page}"}], **following})
    elif method == "resources/templates/list":
        send(id=id, result={"resourceTemplates": [{"uriTemplate": "item://{id}", "name": "items"}]})
    elif method == "resources/read":
        uri = params["uri"]
        if uri == "test://missing":
            return send(id=id, error={"code": -32002, "message": "no such resource"})
        value = os.environ.get("API_TOKEN", "") if uri == "test://secret" else "contents of " + uri
        send(id=id, result={"contents": [{"uri": uri, "text": value}], "ttlMs": 5, "cacheScope": "private"})
    elif method == "completion/complete":
        send(id=id, result={"completion": {"values": [params["argument"]["value"] + "!", params["ref"]["type"]]}})
    elif method == "resources/subscribe":
        watched.add(params["uri"])
        send(id=id, result={})
    elif method == "resources/unsubscribe":
        watched.discard(params["uri"])
        send(id=id, result={})


def handle(message):
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        answers.append(message.get("result", message.get("error")))
        if id in questions:
            asking = questions.pop(id)
            if asking in repeated:
                repeated[asking] -= 1
                if repeated[asking] == 0:
                    text(asking, answers)
            else:
                text(asking, answers[-1])
    elif method == "initialize":
        if "refuse-initialize" in flags:
            return send(id=id, error={"code": -32601, "message": "no"})
        version = next((flag[8:] for flag in flags if flag.startswith("version=")), "2025-11-25")
        send(id=id, result={"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": {"name": "test", "version": "1"}})
    elif method == "server/discover":
        if "exit-on-discover" in flags:
            sys.exit(1)
        if "legacy" in flags:
            return send(id=id, error={"code": -32601, "message": "Method not found"})
        if "late-discover" in flags:
            return late.append(dict(id=id, error={"code": -32601, "message": "Method not found"}))
        result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        info = {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "2"}}
        send(id=id, result={**result, "ttlMs": 0, "cacheScope": "private", "_meta": info})
    elif method == "tools/list" and "fail-list" in flags:
        send(id=id, error={"code": -32000, "message": "no list for " + os.environ["API_TOKEN"]})
    elif method == "tools/list" and "endless-pages" in flags:
        time.sleep(0.3)
        page = int(params.get("cursor") or 0)
        send(id=id, result={"tools": [{"name": f"tool{page}"}], "nextCursor": str(page + 1)})
    elif method == "tools/list" and "late-list" in flags and lists:
        with open(os.environ["TOOLS"]) as file:
            late.append(dict(id=id, result={"tools": json.load(file)}))
        sys.stderr.write("held the list back\n")
    elif method == "tools/list" and "TOOLS" in os.environ:
        lists.append(id)
        with open(os.environ["TOOLS"]) as file:
            send(id=id, result={"tools": json.load(file)})
        if "exit-after-list" in flags:
            os._exit(0)
    elif method == "tools/list":
        page = int(params.get("cursor") or 0)
        following = {} if page == 2 else {"nextCursor": str(page + 1)}
        send(id=id, result={"tools": [{"name": f"tool{page}", "odd": True}], **following, "_meta": {}})
    elif method == "subscriptions/listen":
        subscription = {"io.modelcontextprotocol/subscriptionId": id}
        watched.clear()
        watched.update(params["notifications"].get("resourceSubscriptions", []))
        notify("subscriptions/acknowledged", _meta=subscription, notifications=params["notifications"])
        for _ in range(200):
            notify("tools/list_changed", _meta=subscription)
        if "end-subscription" in flags:
            send(id=id, result={"resultType": "complete", "_meta": subscription})
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    elif method == "tools/call":
        call(id, params)
    elif method == "ping":
        send(id=id, result={})
    elif "lists" in flags:
        handle_lists(id, method, params)


if os.path.exists(os.environ.get("SILENT", "")):
    flags.add("silent")
    with open(os.environ["SILENT"], "w") as file:
        file.write(f"{os.getpid()}\n")
if "FIRST" in os.environ:
    # Only the first process works.
    try:
        os.mkdir(os.environ["FIRST"])
    except FileExistsError:
        flags.add(os.environ["LATER"])
        open(os.environ["FIRST"] + "-later", "w").close()
time.sleep(next((float(flag[6:]) for flag in flags if flag.startswith("start=")), 0))
if "banner" in flags:
    write("Welcome to the test server\n")
if "exit" in flags or os.path.exists(os.environ.get("OUT_OF_ORDER", "")):
    sys.stderr.write("cannot start: no licence\n")
    sys.exit(7)
if "blank-lines" in flags:
    write("\n  \n")
for line in sys.stdin:
    if "silent" not in flags:
        handle(json.loads(line))
for message in late:
    send(**message)
    sys.stderr.write("answered late\n")
if "stay" in flags:
    subprocess.run(["sleep", "600"])
