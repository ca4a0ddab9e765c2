"""The Python SDK as a client of the hub.

usage: python_sdk.py ADDRESS MODE…      MODE: auto, legacy, modern
"""
import asyncio
import contextlib
import sys

sys.dont_write_bytecode = True
import mcp_types  # noqa: E402
from mcp import Client  # noqa: E402
from scenario import Api, Library, User, run, run_modes  # noqa: E402

MODES = {"auto": "auto", "legacy": "legacy", "modern": "2026-07-28"}
VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25", "modern": "2026-07-28"}


class PythonSdk(Library):
    def __init__(self, client, changed):
        self.client, self.changed = client, changed

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool, arguments, on_progress=None):
        return await self.client.call_tool(tool, arguments, progress_callback=on_progress)

    async def read(self, uri):
        return (await self.client.read_resource(uri)).contents[0].text

    @contextlib.asynccontextmanager
    async def list_changes(self):
        if self.client.protocol_version < "2026":
            yield self.next_notification
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            yield subscription.__anext__

    async def next_notification(self):
        await self.changed.wait()
        self.changed.clear()


async def main(address, mode, name):
    user, changed = User(), asyncio.Event()

    async def elicit(context, form):
        return mcp_types.ElicitResult(action="accept", content=user.answer(form.message, form.requested_schema))

    async def hear(message):
        if isinstance(message, mcp_types.ToolListChangedNotification):
            changed.set()

    async with Client(f"{address}/mcp/{name}", mode=MODES[mode], elicitation_callback=elicit, message_handler=hear) as client:
        assert client.protocol_version == VERSIONS[mode], client.protocol_version
        await run(PythonSdk(client, changed), Api(address), user, mode, name)


run_modes(main)
