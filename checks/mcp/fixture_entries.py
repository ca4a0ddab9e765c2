"""The tools, prompts and resources of `fixture_server.py`: what the server scenarios of the official conformance suite call."""
import json

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
# The hub passes on ten updates of progress a second at most.
PROGRESS_INTERVAL = 0.12
# A client that does not get a task waits for the result.
MAX_SECONDS = 2


class Failure(Exception):
    """Becomes a JSON-RPC error."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


def fail(code, message, data=None):
    raise Failure(code, message, data)


def text(value):
    return {"type": "text", "text": value}


def embedded(uri, mime_type, value):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": value}}


def form(message, required=True, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties) if required else []}
    return "elicitation/create", {"message": message, "requestedSchema": schema}


def sampling(prompt, max_tokens=100):
    return "sampling/createMessage", {"messages": [{"role": "user", "content": text(prompt)}], "maxTokens": max_tokens}


ROOTS = ("roots/list", {})
STRING, BOOLEAN = {"type": "string"}, {"type": "boolean"}


def logging(call):
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.log("info", line)
        call.sleep(0.05)
    return [text("Tool with logging executed successfully")]


def progress(call):
    for step in (0, 50, 100):
        call.progress(step, 100)
        call.sleep(PROGRESS_INTERVAL)
    return [text("Tool with progress executed successfully")]


def ask_one(key, request, show):
    """A tool that asks for one thing and shows the answer."""
    return lambda call, **_: [text(show(call.ask(**{key: request})[key]))]


def shown_form(answer):
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content', {}))}"


def multiple_inputs(call):
    answers = call.ask(
        user_name=form("What is your name?", name=STRING), greeting=sampling("Generate a greeting", 50), client_roots=ROOTS,
    )
    return [text(json.dumps(answers))]


def multi_round(call):
    name = call.ask(step1=form("Step 1: What is your name?", name=STRING))["step1"]
    color = call.ask(step2=form("Step 2: What is your favorite color?", color=STRING))["step2"]
    return [text(f"{name['content']['name']} likes {color['content']['color']}")]


def by_capabilities(call):
    """Asks for what the client can answer."""
    requests = {}
    if "elicitation" in call.capabilities:
        requests["elicit_input"] = form("Elicitation input", value=STRING)
    if "sampling" in call.capabilities:
        requests["sample_input"] = sampling("Sample request", 50)
    return [text(json.dumps(call.ask(**requests)))]


def streaming(call):
    call.progress(1, 2)
    return [text(shown_form(call.ask(value=form("A value?", value=STRING))["value"]))]


def change(kind):
    def run(call):
        call.server.change(kind)
        return [text("changed")]

    return run


def compute(call, seconds=1, **_):
    call.sleep(min(seconds, MAX_SECONDS))
    return [text(f"Computed for {seconds} s")]


def failing_job(call, **_):
    call.sleep(1)
    return FAILED


def protocol_error_job(call, **_):
    call.sleep(1)
    fail(-32603, "This tool intentionally fails")


def multi_input(call, **_):
    answers = call.ask(first=form("First?", confirm=BOOLEAN), second=form("Second?", confirm=BOOLEAN))
    return [text(json.dumps(answers))]


def named_job(call, **_):
    name = call.ask(user_name=NAME)["user_name"]["content"]["name"]
    call.sleep(1)
    return [text(f"Hello, {name}!")]


def always(*content):
    return lambda call, **_: list(content)


DEFAULTS = form(
    "Please review the form", required=False,
    name={**STRING, "default": "John Doe"}, age={"type": "integer", "default": 30}, score={"type": "number", "default": 95.5},
    status={**STRING, "enum": ["active", "inactive", "pending"], "default": "active"}, verified={**BOOLEAN, "default": True},
)
OPTIONS, TITLED = ["option1", "option2", "option3"], [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
ENUMS = form(
    "Please select options", required=False,
    untitledSingle={**STRING, "enum": OPTIONS}, titledSingle={**STRING, "oneOf": TITLED},
    legacyEnum={**STRING, "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
    untitledMulti={"type": "array", "items": {**STRING, "enum": OPTIONS}}, titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}},
    "properties": {
        "name": STRING, "address": {"$ref": "#/$defs/address"}, "contactMethod": {**STRING, "enum": ["phone", "email"]},
        "phone": STRING, "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": False,
}
FAILED = {"content": [text("This tool intentionally returns an error for testing")], "isError": True}


def object_of(*names):
    return {"type": "object", "properties": {name: STRING for name in names}, "required": list(names)}


HEADERS = {
    "type": "object", "required": ["region"],
    "properties": {"region": {**STRING, "x-mcp-header": "Region"}, "priority": {"type": "integer", "x-mcp-header": "Priority"}},
}
NO_ARGUMENTS = {"type": "object", "properties": {}}
NAME = form("What is your name?", name=STRING)
CONFIRM = form("Please confirm", ok=BOOLEAN)
# Name -> schema of the arguments, function.
TOOLS = {
    "test_simple_text": (NO_ARGUMENTS, always(text("This is a simple text response for testing."))),
    "test_image_content": (NO_ARGUMENTS, always(IMAGE)),
    "test_audio_content": (NO_ARGUMENTS, always({"type": "audio", "data": WAV, "mimeType": "audio/wav"})),
    "test_embedded_resource": (NO_ARGUMENTS, always(embedded("test://embedded-resource", "text/plain", "An embedded resource."))),
    "test_multiple_content_types": (NO_ARGUMENTS, always(
        text("Multiple content types test:"), IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    )),
    "test_tool_with_logging": (NO_ARGUMENTS, logging),
    "test_logging_tool": (NO_ARGUMENTS, logging),
    "test_tool_with_progress": (NO_ARGUMENTS, progress),
    "test_error_handling": (NO_ARGUMENTS, lambda call: FAILED),
    "test_reconnection": (NO_ARGUMENTS, compute),
    "test_sampling": (object_of("prompt"), lambda call, prompt: [
        text("LLM response: " + call.ask(answer=sampling(prompt))["answer"]["content"]["text"])
    ]),
    "test_elicitation": (object_of("message"), lambda call, message: [
        text(shown_form(call.ask(answer=form(message, response=STRING))["answer"]))
    ]),
    "test_elicitation_sep1034_defaults": (NO_ARGUMENTS, ask_one("form", DEFAULTS, shown_form)),
    "test_elicitation_sep1330_enums": (NO_ARGUMENTS, ask_one("form", ENUMS, shown_form)),
    "json_schema_2020_12_tool": (SCHEMA_2020_12, lambda call, **arguments: [text(json.dumps(arguments))]),
    "test_missing_capability": (NO_ARGUMENTS, ask_one("answer", sampling("Anything"), str)),
    "test_streaming_elicitation": (NO_ARGUMENTS, streaming),
    "test_trigger_tool_change": (NO_ARGUMENTS, change("tools")),
    "test_trigger_prompt_change": (NO_ARGUMENTS, change("prompts")),
    "test_input_required_result_elicitation": (NO_ARGUMENTS, ask_one("user_name", NAME, shown_form)),
    "test_input_required_result_sampling": (NO_ARGUMENTS, ask_one("capital_question", sampling("What is the capital of France?"), str)),
    "test_input_required_result_list_roots": (NO_ARGUMENTS, ask_one("client_roots", ROOTS, str)),
    "test_input_required_result_request_state": (NO_ARGUMENTS, ask_one("confirm", CONFIRM, shown_form)),
    "test_input_required_result_tampered_state": (NO_ARGUMENTS, ask_one("confirm", CONFIRM, shown_form)),
    "test_input_required_result_multiple_inputs": (NO_ARGUMENTS, multiple_inputs),
    "test_input_required_result_multi_round": (NO_ARGUMENTS, multi_round),
    "test_input_required_result_capabilities": (NO_ARGUMENTS, by_capabilities),
    "test_custom_headers": (HEADERS, lambda call, **arguments: [text(json.dumps(arguments))]),
}
TASK_TOOLS = {
    "greet": (object_of("name"), lambda call, name: [text(f"Hello, {name}!")]),
    "slow_compute": ({"type": "object", "properties": {"seconds": {"type": "number"}}}, compute),
    "failing_job": (NO_ARGUMENTS, failing_job),
    "protocol_error_job": (NO_ARGUMENTS, protocol_error_job),
    "confirm_delete": (object_of("filename"), ask_one("confirm", form("Delete?", confirm=BOOLEAN), shown_form)),
    "multi_input": (NO_ARGUMENTS, multi_input),
    "test_tool_with_task": (NO_ARGUMENTS, named_job),
}
# Name -> names of the arguments, function.
PROMPTS = {
    "test_simple_prompt": ((), always(text("This is a simple prompt for testing."))),
    "test_prompt_with_arguments": (("arg1", "arg2"), lambda call, arg1, arg2: [
        text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
    ]),
    "test_prompt_with_embedded_resource": (("resourceUri",), lambda call, resourceUri: [
        embedded(resourceUri, "text/plain", "Embedded resource content for testing."), text("Please process the resource above."),
    ]),
    "test_prompt_with_image": ((), always(IMAGE, text("Please analyze the image above."))),
    "test_input_required_result_prompt": ((), ask_one(
        "user_context", form("What context should the prompt use?", context=STRING), shown_form,
    )),
}
# URI -> MIME type, content.
RESOURCES = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": PNG}),
    "test://watched-resource": ("text/plain", {"text": "Watched resource content"}),
}


def tool_entry(name, schema):
    return {"name": name, "description": f"Tool of the conformance suite: {name}.", "inputSchema": schema or NO_ARGUMENTS}


def prompt_entry(name, arguments):
    arguments = [{"name": argument, "description": "An argument.", "required": True} for argument in arguments]
    return {"name": name, "description": f"Prompt of the conformance suite: {name}.", "arguments": arguments}


def read(uri):
    if uri.startswith("test://template/") and uri.endswith("/data"):
        id = uri.removeprefix("test://template/").removesuffix("/data")
        return {"uri": uri, "mimeType": "application/json", "text": json.dumps({"id": id, "data": f"Data for ID: {id}"})}
    mime_type, content = RESOURCES.get(uri) or fail(-32602, "Resource not found", {"uri": uri})
    return {"uri": uri, "mimeType": mime_type, **content}
