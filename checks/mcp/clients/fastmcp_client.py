"""fastmcp as a client of the hub.

usage: fastmcp_client.py ADDRESS MODE…      MODE: auto, legacy
"""
import asyncio
import contextlib
import sys

sys.dont_write_bytecode = True
from fastmcp import Client  # noqa: E402
from fastmcp.client.messages import MessageHandler  # noqa: E402
from scenario import Api, Library, User, run, run_modes  # noqa: E402

VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


class Changes(MessageHandler):
    def __init__(self):
        self.changed = asyncio.Event()

    async def on_tool_list_changed(self, message):
        self.changed.set()

    async def next(self):
        await self.changed.wait()
        self.changed.clear()


class FastMcp(Library):
    def __init__(self, client, changes):
        self.client, self.changes = client, changes

    async def tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, tool, arguments, on_progress=None):
        return await self.client.call_tool_mcp(tool, arguments, progress_handler=on_progress)

    async def read(self, uri):
        return (await self.client.read_resource(uri))[0].text

    @contextlib.asynccontextmanager
    async def list_changes(self):
        # fastmcp hears the stream of a session, but has no `subscriptions/listen`.
        yield self.changes.next if self.client.protocol_version < "2026" else None


async def main(address, mode, name):
    user, changes = User(), Changes()

    async def elicit(message, response_type, form, context):
        return user.answer(message, form.requested_schema)

    async with Client(f"{address}/mcp/{name}", mode=mode, elicitation_handler=elicit, message_handler=changes) as client:
        assert client.protocol_version == VERSIONS[mode], client.protocol_version
        await run(FastMcp(client, changes), Api(address), user, mode, name)


run_modes(main)
