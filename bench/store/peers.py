"""Times one update of a state of 1 KiB with LangGraph's SqliteSaver: read the last checkpoint, write the next one.

In: a folder. Out: one JSON line, {"name": ..., "per_second": ...}, the median of several rounds. The Rust benchmark does
the comparison.
"""

import json
import sqlite3
import statistics
import sys
import time

from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

ROUNDS = 5
SECONDS = 0.4


def main(folder):
    connection = sqlite3.connect(f"{folder}/langgraph.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    config = {"configurable": {"thread_id": "thread-0001", "checkpoint_ns": ""}}
    first = empty_checkpoint()
    first["channel_values"] = {"cart": "x" * 1024}
    saver.put(config, first, {"source": "loop", "step": 0}, {})

    def update(step):
        last = saver.get_tuple(config).checkpoint
        assert len(last["channel_values"]["cart"]) == 1024
        saver.put(config, create_checkpoint(last, None, step), {"source": "loop", "step": step}, {})

    rates, step = [], 0
    for _ in range(ROUNDS):
        start, updates = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            step, updates = step + 1, updates + 1
            update(step)
        rates.append(updates / (time.perf_counter() - start))
    print(json.dumps({"name": "LangGraph SqliteSaver", "per_second": round(statistics.median(rates), 1)}))


main(sys.argv[1])
