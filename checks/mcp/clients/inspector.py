"""The command line of the MCP Inspector as a client of the hub. Each request is a run of it.

usage: inspector.py ADDRESS MODE…      MODE: legacy, modern; in the folder with `node_modules`
"""
import asyncio
import json
import os
import pathlib
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
from scenario import LONG_TEXT, Api, report, run_modes  # noqa: E402

INSPECTOR = pathlib.Path("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js").resolve()
NODE = pathlib.Path("node_modules/node/bin/node").resolve()


class Inspector:
    def __init__(self, url, era, home):
        self.options = ["--cli", "--server-url", url, "--transport", "http", "--protocol-era", era, "--format", "json"]
        self.home = home  # The Inspector stores settings in the home folder.

    async def start(self, *options):
        return await asyncio.create_subprocess_exec(
            NODE, INSPECTOR, *self.options, *options, env={**os.environ, "HOME": self.home},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )

    async def request(self, method, *options):
        process = await self.start("--method", method, *options)
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            raise
        try:
            return json.loads(output)["result"]
        except (ValueError, KeyError):
            raise AssertionError(f"{method}: exit code {process.returncode}: {output.decode()}{errors.decode()}") from None

    async def tools(self):
        return [tool["name"] for tool in (await self.request("tools/list"))["tools"]]

    async def call(self, tool, arguments, *options):
        return await self.request("tools/call", *call_options(tool, arguments), *options)


def call_options(tool, arguments):
    return "--tool-name", tool, "--tool-args-json", json.dumps(arguments)


def text_of(result):
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def run(inspector, api, era, client):
    switched = f"switched-{client}"

    async def list_tools():
        assert {"count", "everything__echo", switched} <= set(await inspector.tools())

    async def call():
        assert text_of(await inspector.call("everything__echo", {"message": "hello"})) == "Echo: hello"

    async def structured_output():
        result = await inspector.call("everything__get-structured-content", {"location": "Chicago"})
        assert result["structuredContent"].keys() == {"temperature", "conditions", "humidity"}, result

    async def progress():
        return "it asks for no progress"

    async def cancel():
        if era == "legacy":
            return "it has no option for it, and the end of a connection cancels no call of a session"
        process = await inspector.start("--method", "tools/call", *call_options("count", {"client": client, "steps": 1_000}))
        while not await api.calls("executing", client):
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        while not await api.calls("cancelled", client):
            await asyncio.sleep(0.05)

    async def approval_by_form():
        folder = f"/tmp/old-{client}"
        arguments = {"folder": folder}
        if era == "legacy":
            # Each run has a session and so a thread of its own, but an approval belongs to a thread.
            thread = ("--tool-metadata", f"dev.toolhub/threadId={client}")
            linked = await inspector.call("remove", arguments, *thread)
            assert linked["isError"] and linked["_meta"]["dev.toolhub/approvalUrl"].startswith("http"), linked
            await api.approve(arguments)
            result = await inspector.call("remove", arguments, *thread)
        else:
            result, _ = await asyncio.gather(inspector.call("remove", arguments), api.approve(arguments))
        assert f"{folder} is deleted" in text_of(result), result
        way = "a link, and makes the call again" if era == "legacy" else "a task, and waits for it"
        return f"it shows no forms; it gets {way}"

    async def list_change():
        return "each run makes one request"

    async def artifact():
        result = await inspector.call("long_text", {})
        (link,) = [block for block in result["content"] if block["type"] == "resource_link"]
        contents = (await inspector.request("resources/read", "--uri", link["uri"]))["contents"]
        assert LONG_TEXT in contents[0]["text"]

    for feature in (list_tools, call, structured_output, progress, cancel, approval_by_form, list_change, artifact):
        await report(era, feature)


async def main(address, era, name):
    with tempfile.TemporaryDirectory() as home:
        await run(Inspector(f"{address}/mcp/{name}", era, home), Api(address), era, name)


run_modes(main)
