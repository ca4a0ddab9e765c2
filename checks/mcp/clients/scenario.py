"""What the Python clients of this folder do with a hub that `clients.py` started. Each feature of each mode is a line on stdout.

The client libraries are behind `Library`, which each program implements with the methods that its library documents.
"""
import asyncio
import contextlib
import json
import pathlib
import sys
import time
import urllib.request

DEADLINE = 20
LONG_TEXT = "0123456789" * 1_000


class Library:
    """A connected client. Results are those of the package `mcp_types`."""

    async def tools(self):
        """The names of all tools."""

    async def call(self, tool, arguments, on_progress=None):
        """The result of a call."""

    async def read(self, uri):
        """The text of a resource."""

    @contextlib.asynccontextmanager
    async def list_changes(self):
        """A function that waits for the next change of the list of tools; `None` if the library cannot hear of changes."""
        yield None


class Api:
    """The HTTP API of the hub."""

    def __init__(self, address):
        self.address = address + "/api/v1"

    async def request(self, method, path, body=None):
        def send():
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(self.address + path, data, headers, method=method)) as response:
                return json.load(response)

        return await asyncio.to_thread(send)

    async def set_status(self, tool, status):
        await self.request("PUT", f"/tools/{tool}/status", {"status": status})

    async def calls(self, status, client):
        """The calls of `count` by a client."""
        calls = await self.request("GET", f"/calls?tool=count&status={status}")
        return [call for call in calls["items"] if call["arguments"]["client"] == client]

    async def approve(self, arguments):
        """Approves the call with these arguments once it waits for it."""
        while True:
            for approval in (await self.request("GET", "/approvals?state=pending"))["items"]:
                if approval["arguments"] == arguments:
                    return await self.request("POST", f"/approvals/{approval['id']}", {"outcome": "proceed_once"})
            await asyncio.sleep(0.05)


class User:
    """Answers forms about approvals."""

    def __init__(self):
        self.forms, self.decisions = [], []

    def answer(self, message, schema):
        self.forms.append(message)
        assert schema["required"] == ["decision"], schema
        return {"decision": self.decisions.pop(0)}


def text_of(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def run(library, api, user, mode, client):
    """`client`: the name of the client in this mode, which has a tool and a toolset of its own."""
    switched = f"switched-{client}"

    async def list_tools():
        assert {"count", "everything__echo", switched} <= set(await library.tools())

    async def call():
        result = await library.call("everything__echo", {"message": "hello"})
        assert not result.is_error and text_of(result) == "Echo: hello", result

    async def structured_output():
        result = await library.call("everything__get-structured-content", {"location": "Chicago"})
        assert result.structured_content.keys() == {"temperature", "conditions", "humidity"}, result
        assert json.loads(text_of(result)) == result.structured_content, result

    async def progress():
        updates = []

        async def update(progress, total, message):
            updates.append((progress, message))

        result = await library.call("count", {"client": client, "steps": 3}, update)
        assert text_of(result).startswith("counted to 3"), result
        # The hub leaves out updates that are too close to others.
        assert len(updates) > 1 and updates == sorted(updates), updates
        assert {message for _, message in updates} <= {"1 of 3", "2 of 3", "3 of 3"}, updates

    async def cancel():
        started = asyncio.Event()

        async def update(*_):
            started.set()

        running = asyncio.create_task(library.call("count", {"client": client, "steps": 1_000}, update))
        await started.wait()
        assert not await api.calls("cancelled", client)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        while not await api.calls("cancelled", client):
            await asyncio.sleep(0.05)

    async def approval_by_form():
        for decision, folder in (("proceed_once", f"/tmp/old-{client}"), ("cancel", f"/tmp/new-{client}")):
            user.decisions.append(decision)
            result = await library.call("remove", {"folder": folder})
            assert result.is_error == (decision == "cancel"), result
            assert (f"{folder} is deleted" in text_of(result)) == (decision == "proceed_once"), result
            assert folder in user.forms.pop() and not user.forms, user.forms

    async def list_change():
        async with library.list_changes() as change:
            if change is None:
                return "the library has no method for it"
            for status, is_listed in (("maintenance", False), ("available", True)):
                await api.set_status(switched, status)
                await change()
                assert (switched in await library.tools()) == is_listed, status

    async def artifact():
        result = await library.call("long_text", {})
        (link,) = [block for block in result.content if block.type == "resource_link"]
        assert str(link.uri).startswith("toolhub://artifacts/"), link
        assert LONG_TEXT in await library.read(str(link.uri))

    for feature in (list_tools, call, structured_output, progress, cancel, approval_by_form, list_change, artifact):
        await report(mode, feature)


async def report(mode, feature):
    name = f"{mode}, {feature.__name__.replace('_', ' ')}"
    begin = time.monotonic()
    try:
        obstacle = await asyncio.wait_for(feature(), DEADLINE)
    except Exception as error:
        print(f"{name}: FAILED: {error!r}", flush=True)
    else:
        print(f"{name}: {'cannot, because ' + obstacle if obstacle else 'ok'} ({time.monotonic() - begin:.1f} s)", flush=True)


def run_modes(connect_and_run):
    """Runs all modes of the command line at the same time. `connect_and_run` takes an address, a mode, and the name of the client."""

    async def run_all(address, *modes):
        program = pathlib.Path(sys.argv[0]).stem
        await asyncio.gather(*(connect_and_run(address, mode, f"{program}-{mode}") for mode in modes))

    asyncio.run(run_all(*sys.argv[1:]))
