"""Times one tiny tool through the call paths of other tool libraries.

In: nothing. Out: one JSON line per path, {"name": ..., "ns_per_call": ...}, the median of several rounds.
Each path uses the kind of function that it runs fastest: a synchronous one if the library calls it directly,
an async one if a synchronous one would run in a thread pool. The Rust benchmark does the comparison.
"""

import asyncio
import json
import os
import statistics
import time

# Tracing would send calls to a server when the caller's environment asks for it.
os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"

from langchain_core.tools import StructuredTool
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage

ROUNDS = 9
SECONDS_PER_ROUND = 0.25
ARGUMENTS = {"a": 2, "b": 3}
EXPECTED = {"sum": 5}


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


async def add_async(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def report(name, rounds):
    print(json.dumps({"name": name, "ns_per_call": round(statistics.median(rounds))}), flush=True)


def calls_per_round(seconds_for_hundred):
    return max(100, int(SECONDS_PER_ROUND / seconds_for_hundred * 100))


def time_plain(name, call):
    assert call() == EXPECTED, f"{name} returned a wrong result"

    def seconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    seconds(100)
    calls = calls_per_round(seconds(100))
    report(name, [seconds(calls) / calls * 1e9 for _ in range(ROUNDS)])


async def time_async(name, call):
    assert await call() == EXPECTED, f"{name} returned a wrong result"

    async def seconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            await call()
        return time.perf_counter() - start

    await seconds(100)
    calls = calls_per_round(await seconds(100))
    report(name, [await seconds(calls) / calls * 1e9 for _ in range(ROUNDS)])


async def pydantic_ai_paths():
    toolset = FunctionToolset()
    toolset.add_function(add_async, name="add")
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    tool = (await toolset.get_tools(context))["add"]
    # The function call alone: the arguments are not validated.
    await time_async(
        "pydantic-ai FunctionToolset.call_tool", lambda: toolset.call_tool("add", ARGUMENTS, context, tool)
    )

    # What an agent run does with each tool call: parse JSON, validate against the schema, call.
    manager = await ToolManager(toolset).for_run_step(context)
    part = ToolCallPart("add", json.dumps(ARGUMENTS), tool_call_id="call")
    await assert_validates_arguments(manager)
    await time_async("pydantic-ai ToolManager.handle_call", lambda: manager.handle_call(part))


async def assert_validates_arguments(manager):
    """Aborts if this path no longer validates arguments, because its time would not be comparable."""
    invalid = ToolCallPart("add", '{"a": "two", "b": 3}', tool_call_id="call")
    try:
        await manager.handle_call(invalid, wrap_validation_errors=False)
    except ValueError:
        return
    raise SystemExit("pydantic-ai ToolManager.handle_call accepted invalid arguments; this benchmark needs a path that validates")


def main():
    asyncio.run(pydantic_ai_paths())
    tool = StructuredTool.from_function(func=add, coroutine=add_async, name="add")
    time_plain("LangChain StructuredTool.invoke", lambda: tool.invoke(ARGUMENTS))
    asyncio.run(time_async("LangChain StructuredTool.ainvoke", lambda: tool.ainvoke(ARGUMENTS)))


main()
