"""The Python SDK as a client of a hub whose MCP server is another hub. Each feature that works is a line on stdout.

usage: chain_client.py ADDRESS RECORD      RECORD: the file of `recorder.py`, which runs a server of the inner hub
"""
import asyncio
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import mcp_types  # noqa: E402
from mcp import Client  # noqa: E402
from scenario import report, text_of  # noqa: E402

LONG_RUNNING = "trigger-long-running-operation"
# From the cancel of the client to the end of what runs behind both hubs, in seconds.
CANCEL_LIMIT = 1


def recorded(record, method):
    """The messages with this method that the recorded server was sent, with their times."""
    lines = [json.loads(line) for line in pathlib.Path(record).read_text().splitlines()]
    return [(line["time"], line["message"]) for line in lines if line["message"].get("method") == method]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def cancelled_call(client, tool, arguments):
    """Cancels a call after its first progress. The time of the cancel."""
    started = asyncio.Event()

    async def update(*_):
        started.set()

    running = asyncio.create_task(client.call_tool(tool, arguments, progress_callback=update))
    await asyncio.wait([running, asyncio.create_task(started.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert not running.done(), running.result()
    begin = time.time()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return begin


async def run(client, era, record):
    async def question():
        result = await client.call_tool("inner__everything__trigger-elicitation-request", {})
        assert "- Name: Ada" in text_of(result), result

    async def progress():
        updates = []

        async def update(progress, total, message):
            updates.append((progress, total))

        result = await client.call_tool(f"inner__everything__{LONG_RUNNING}", {"duration": 0.6, "steps": 3}, progress_callback=update)
        assert text_of(result).startswith("Long running operation completed"), result
        # The hubs leave out updates that are too close to others.
        assert len(updates) > 1 and updates == sorted(updates) and set(updates) <= {(1, 3), (2, 3), (3, 3)}, updates

    async def cancel_of_a_server():
        before = len(recorded(record, "notifications/cancelled"))
        begin = await cancelled_call(client, f"inner__recorded__{LONG_RUNNING}", {"duration": 20, "steps": 100})
        while len(cancels := recorded(record, "notifications/cancelled")) == before:
            await asyncio.sleep(0.02)
        _, call = recorded(record, "tools/call")[-1]
        received, cancel = cancels[-1]
        assert cancel["params"]["requestId"] == call["id"], (cancel, call)
        assert received - begin <= CANCEL_LIMIT, received - begin

    async def cancel_of_a_program():
        with tempfile.TemporaryDirectory() as folder:
            pid_file = pathlib.Path(folder, "pid")
            begin = await cancelled_call(client, "inner__count", {"steps": 1_000, "pid_file": str(pid_file)})
            pid = int(pid_file.read_text())
            while is_running(pid):
                await asyncio.sleep(0.02)
            assert time.time() - begin <= CANCEL_LIMIT, time.time() - begin

    for feature in (question, progress, cancel_of_a_server, cancel_of_a_program):
        await report(era, feature)


async def main(address, record):
    async def answer(context, form):
        return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})

    # One after the other: which call a question belongs to is certain only if no other call runs.
    for era, mode in (("legacy", "legacy"), ("modern", "2026-07-28")):
        async with Client(address + "/mcp", mode=mode, elicitation_callback=answer) as client:
            await run(client, era, record)


asyncio.run(main(*sys.argv[1:]))
