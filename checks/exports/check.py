"""Validates exported tools against the types of the official packages.

In, on stdin: {"anthropic": [...], "openai": [...], "openai-responses": [...], "gemini": [...], "mcp": [...]}.
Out: a line for every tool a package refuses, then `N passed, M failed`; exit code 1 when one was refused.
Needs what `requirements.txt` names and talks to no server. What only a provider's server refuses is checked by rules written here.
"""

import json
import re
import sys
from typing import Any, Callable, Iterator

from anthropic.types import ToolParam
from google.genai import models, types as gemini_types
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from mcp import types as mcp_types
from mcp.types import methods as mcp_methods
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

ROOT_REFUSED = ("anyOf", "oneOf", "allOf", "not", "enum", "const")
ONE = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
       "unevaluatedItems", "unevaluatedProperties")
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")

Tool = dict[str, Any]


class Refused(Exception):
    pass


def expect(holds: Any, otherwise: str) -> None:
    if not holds:
        raise Refused(otherwise)


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every schema in it. Values of `default` or `enum` are data and are not visited."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword, value in schema.items():
        if keyword in ONE:
            yield from schemas(value)
        elif keyword in MANY:
            for inner in value:
                yield from schemas(inner)
        elif keyword in NAMED:
            for inner in value.values():
                yield from schemas(inner)


def exact(typed_dict: Any) -> Callable[[Tool], None]:
    """A check that also refuses keys the type does not have."""
    known = set(typed_dict.__annotations__)
    adapter = TypeAdapter(typed_dict)

    def check(tool: Tool) -> None:
        expect(set(tool) <= known, f"unknown keys {sorted(set(tool) - known)}")
        read = adapter.validate_python(tool, strict=True)
        expect(adapter.dump_python(read, mode="json") == tool, "the type reads it differently")

    return check


def check_json_schema(schema: Any) -> None:
    """A schema for a provider that supports only part of JSON Schema."""
    expect(isinstance(schema, dict), "the schema is no object")
    Draft202012Validator.check_schema(schema)
    expect(schema.get("type") == "object", "the root is no object")
    expect(isinstance(schema.get("properties"), dict), "the root lists no properties")
    for keyword in ROOT_REFUSED:
        expect(keyword not in schema, f"`{keyword}` at the root")
    for inner in schemas(schema):
        for keyword in ("$ref", "$dynamicRef", "$defs", "definitions", "$schema", "$id"):
            expect(keyword not in inner, f"`{keyword}` is left over")
        kind = inner.get("type")
        if kind == "array" or isinstance(kind, list) and "array" in kind:
            expect(isinstance(inner.get("items"), dict), "an array without items")


anthropic_type = exact(ToolParam)
openai_type = exact(ChatCompletionFunctionToolParam)
responses_type = exact(FunctionToolParam)


def check_anthropic(tool: Tool) -> None:
    anthropic_type(tool)
    check_json_schema(tool["input_schema"])
    for name in tool["input_schema"]["properties"]:
        expect(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name), f"the argument name {name!r}")


def check_openai(tool: Tool) -> None:
    openai_type(tool)
    function = tool["function"]
    expect(set(function) <= {"name", "description", "parameters", "strict"}, "unknown keys in the function")
    expect(function["strict"] is False, "strict mode")
    check_json_schema(function["parameters"])


def check_openai_responses(tool: Tool) -> None:
    responses_type(tool)
    expect(tool["strict"] is False, "strict mode")
    check_json_schema(tool["parameters"])


# What the package itself does to a tool before sending it, for its two APIs.
TO_WIRE = {"the Gemini API": models._Tool_to_mldev, "Vertex": models._Tool_to_vertex}
FORMATS = {"STRING": {"date-time", "enum"}, "INTEGER": {"int32", "int64"}, "NUMBER": {"float", "double"}}


def check_gemini(tool: Tool) -> None:
    read = gemini_types.FunctionDeclaration.model_validate(tool)
    again = json.loads(read.model_dump_json(by_alias=True, exclude_none=True))
    expect(again == tool, "it does not survive a round trip")
    for name, to_wire in TO_WIRE.items():
        sent = to_wire(gemini_types.Tool(function_declarations=[read]))["functionDeclarations"]
        sent = [gemini_types.FunctionDeclaration.model_validate(one) for one in sent]
        expect(sent == [read], f"it changes on the way to {name}")
    expect(tool.get("description"), "no description")
    if "parameters" not in tool:
        return
    root = tool["parameters"]
    expect(root.get("type") == "OBJECT" and root.get("properties"), "parameters without properties")
    for name in root["properties"]:
        expect(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name), f"the argument name {name!r}")
    for inner in schemas(root):
        check_gemini_schema(inner)


def check_gemini_schema(schema: dict[str, Any]) -> None:
    for field in ("additionalProperties", "defs", "ref", "$ref", "$defs"):
        expect(field not in schema, f"`{field}` is left over")
    if "anyOf" in schema:
        expect(list(schema) == ["anyOf"], "something beside `anyOf`")
        expect(len(schema["anyOf"]) > 1, "`anyOf` of fewer than two")
        return
    kind = schema.get("type")
    expect(kind in {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}, f"the type {kind!r}")
    expect("format" not in schema or schema["format"] in FORMATS.get(kind, ()), f"the format {schema.get('format')!r}")
    expect("enum" not in schema or kind == "STRING", f"`enum` for {kind}")
    expect(all(schema.get("enum", ["-"])), "an empty value in `enum`")
    expect(kind != "ARRAY" or "items" in schema, "an array without items")
    expect(set(schema.get("required", ())) <= set(schema.get("properties", ())), "an unlisted argument is required")
    expect(schema.get("properties") != {}, "an empty list of properties")


def check_mcp(tool: Tool) -> None:
    read = mcp_types.Tool.model_validate(tool)
    again = json.loads(read.model_dump_json(by_alias=True, exclude_none=True))
    expect(again == tool, "it does not survive a round trip")
    for version in KNOWN_PROTOCOL_VERSIONS:
        result = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        mcp_methods.validate_server_result("tools/list", version, result)
    for part in ("inputSchema", "outputSchema"):
        if part in tool:
            expect(tool[part].get("type") == "object", f"the root of {part} is no object")
            # MCP lets a schema name its draft.
            validator_for(tool[part], default=Draft202012Validator).check_schema(tool[part])


CHECKS: dict[str, Callable[[Tool], None]] = {
    "anthropic": check_anthropic,
    "openai": check_openai,
    "openai-responses": check_openai_responses,
    "gemini": check_gemini,
    "mcp": check_mcp,
}


def name_of(tool: Tool) -> str:
    return tool.get("name") or tool.get("function", {}).get("name") or "?"


def main() -> int:
    document = json.load(sys.stdin)
    passed, failed = 0, 0

    def judge(what: str, check: Callable[[], None]) -> None:
        nonlocal passed, failed
        try:
            check()
            passed += 1
        except Exception as error:  # Whatever a package raises, it refused the tool.
            failed += 1
            reason = " ".join(str(error).split())
            print(f"FAILED {what}: {type(error).__name__}: {reason[:400]}")

    def same_names(found: list[str], expected: list[str]) -> None:
        expect(found == sorted(found), "not sorted by name")
        expect(found == expected, "not the same tools as in the other formats")

    expected = [name_of(tool) for tool in document.get("mcp", [])]
    judge("input", lambda: expect(set(document) == set(CHECKS), f"formats are {sorted(document)}"))
    judge("input", lambda: expect(expected, "there is no tool to check"))
    for format, check in CHECKS.items():
        tools = document.get(format, [])
        judge(f"{format}: the list", lambda: same_names([name_of(tool) for tool in tools], expected))
        for tool in tools:
            judge(f"{format}: {name_of(tool)}", lambda: check(tool))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
