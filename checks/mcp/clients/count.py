"""A stateful tool that counts slowly: reports progress, and runs until it is done or its process is stopped."""
import json
import os
import sys
import time

for request in map(json.loads, sys.stdin):
    arguments = request["arguments"]
    steps = arguments["steps"]
    if "pid_file" in arguments:
        with open(arguments["pid_file"], "w") as file:
            file.write(str(os.getpid()))
    for step in range(1, steps + 1):
        time.sleep(0.15)
        print(json.dumps({"progress": {"message": f"{step} of {steps}", "fraction": step / steps}}), flush=True)
    print(json.dumps({"id": request["id"], "result": f"counted to {steps}"}), flush=True)
