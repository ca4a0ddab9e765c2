"""A stateful tool: a shopping cart. One process per thread; data that must survive the process is in `state`."""
import json, sys

def add(arguments, state):
    lines = state.setdefault("lines", {})
    lines[arguments["sku"]] = lines.get(arguments["sku"], 0) + arguments["qty"]
    return {"items": sum(lines.values())}

for request in map(json.loads, sys.stdin):
    state = request["state"]
    result = add(request["arguments"], state)
    print(json.dumps({"id": request["id"], "result": result, "state": state}), flush=True)
