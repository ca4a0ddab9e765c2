"""Runs an MCP server on stdin and stdout, and records what its client sends.

usage: recorder.py RECORD PROGRAM [ARGUMENT…]      RECORD: a file, gets a line of JSON with `time` and `message` for each message
"""
import json
import subprocess
import sys
import time

record, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.PIPE)
with open(record, "a", buffering=1) as lines:
    for line in sys.stdin.buffer:
        print(json.dumps({"time": time.time(), "message": json.loads(line)}), file=lines)
        server.stdin.write(line)
        server.stdin.flush()
server.stdin.close()
sys.exit(server.wait())
