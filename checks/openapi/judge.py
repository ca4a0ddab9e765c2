"""Validates a request against the document its tool was imported from, with openapi-core.

In: a document, a tool that was imported from it, the arguments of a call, and the recorded request. Out: a list of complaints. Besides
what the library checks (method, path, parameters, security and body against their schemas), nothing may be lost or added: what the
library reads from the request must equal the arguments, and there must be no other pair in the query and no other header.
"""
import http.cookies
import re
import urllib.parse
import warnings

from jsonschema_path import SchemaPath
from openapi_core.datatypes import RequestParameters
from openapi_core.deserializing.media_types.util import json_loads
from openapi_core.deserializing.styles import style_deserializers
from openapi_core.deserializing.styles.factories import StyleDeserializersFactory
from openapi_core.templating.paths.datatypes import PathOperationServer
from openapi_core.templating.paths.exceptions import PathError
from openapi_core.templating.paths.finders import APICallPathFinder
from openapi_core.validation.request.exceptions import MissingRequestBody
from openapi_core.validation.request.validators import V30RequestValidator, V31RequestValidator
from werkzeug.datastructures import Headers, ImmutableMultiDict

warnings.filterwarnings("ignore")
USUAL_HEADERS = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "traceparent", "tracestate", "idempotency-key"}


class Judge:
    def __init__(self, document, base_url):
        # Requests go to the recorder, whatever servers the document names.
        document = {**document, "servers": [{"url": base_url}]}
        document["paths"] = {path: simpler(item) for path, item in document["paths"].items()}
        self.document, self.base_url = document, base_url
        self.spec = SchemaPath.from_dict(document)
        kind = V30RequestValidator if str(document["openapi"]).startswith("3.0") else V31RequestValidator
        styles = StyleDeserializersFactory(kind.schema_casters_factory, {**style_deserializers, "deepObject": deep})
        # The library knows `application/json`; other JSON media types must be registered.
        more = {name: json_loads for name in media_types(document) if name.endswith("+json") or "*" in name}
        self.validator = kind(self.spec, style_deserializers_factory=styles, extra_media_type_deserializers=more)

    def complaints(self, tool, arguments, seen):
        """Everything that is wrong with a request."""
        if seen.method != tool["method"]:
            return [f"the method is {seen.method}"]
        try:
            found = self.find(tool, seen)
        except PathError as error:
            return [f"the path {seen.target} is not of {tool['path']}: {error}"]
        request = parameters(seen)
        request.path = {name: urllib.parse.unquote(value) for name, value in found.path_result.variables.items()}
        out = []
        try:
            self.validator._get_security(request, found.operation)
        except Exception as error:
            out.append(f"security: {error_chain(error)}")
        try:
            read = self.validator._get_parameters(request, found.operation, found.path)
        except Exception as error:
            return [*out, f"parameters: {error_chain(error)}"]
        for parameter in tool["parameters"]:
            if parameter["place"] == "query":
                out += missing(parameter["name"], arguments.get(parameter["argument"]), request.query)
            self.compare(out, parameter["name"], parameter["place"], arguments.get(parameter["argument"]),
                         getattr(read, parameter["place"]).get(parameter["name"]))
        out += self.body(tool, arguments, seen, found.operation)
        out += self.unexpected(tool, seen, request)
        return out

    def find(self, tool, seen):
        """The operation, if the request matches its path. Searches a single path: with a thousand, the library takes a second."""
        target = tool["path"].partition("?")[0]
        alone = {"openapi": self.document["openapi"], "servers": self.document["servers"], "paths": {target: {tool["method"].lower(): {}}}}
        path = seen.target.partition("?")[0]
        url = urllib.parse.urljoin(self.base_url, path)
        found = APICallPathFinder(SchemaPath.from_dict(alone)).find(tool["method"].lower(), url)
        item = self.spec / "paths" / tool["path"]
        return PathOperationServer(item, item / tool["method"].lower(), found.server, found.path_result, found.server_result)

    def body(self, tool, arguments, seen, operation):
        body = tool["body"]
        if body is None:
            return [f"an unexpected body {seen.body[:80]!r}"] if seen.body else []
        if body["members"]:
            given = {name: arguments[argument] for argument, name in body["members"] if argument in arguments}
            given = given if given or body["required"] else None
        else:
            given = arguments.get(body["argument"])
        if given is None:
            return [f"a body although none was given: {seen.body[:80]!r}"] if seen.body else []
        kind = dict((name.lower(), value) for name, value in seen.headers).get("content-type", "")
        if kind.partition(";")[0] != body["mediaType"].partition(";")[0]:
            return [f"the media type of the body is {kind!r}"]
        form = body["mediaType"].startswith("application/x-www-form")
        try:
            read = self.validator._get_body(seen.body, kind, operation)
        except MissingRequestBody:
            read = None
        except Exception as error:
            return [f"body: {error_chain(error)}; sent {seen.body[:300]!r}"]
        out = []
        if form:
            fields = urllib.parse.parse_qs(seen.body.decode(), keep_blank_values=True)
            for name in given:
                out += missing(name, given[name], fields)
            out += [f"the field {name} was not given" for name in fields if name.partition("[")[0] not in given]
        self.compare(out, "body", "form" if form else "body", given, read)
        return out

    @staticmethod
    def compare(out, name, place, given, read):
        if given is None:
            return  # The value read here is a default of the document.
        if place != "body":
            # An empty list or object does not appear in a query or a form.
            read, given = pruned(read), pruned(given)
        if place == "query" and isinstance(given, list) and len(given) == 1 and not isinstance(read, list):
            given = given[0]  # Where a schema allows both, a list of one looks like its item.
        if plain(read) != plain(given):
            out.append(f"{name} in {place}: sent {given!r}, arrived as {read!r}")

    def unexpected(self, tool, seen, request):
        schemes = self.document.get("components", {}).get("securitySchemes", {}).values()
        keys = {(scheme.get("in"), scheme.get("name", "").lower()) for scheme in schemes if scheme.get("type") == "apiKey"}
        known = {(one["place"], one["name"].lower()) for one in tool["parameters"]} | keys | {("header", name) for name in USUAL_HEADERS}
        known |= {("query", name.lower()) for name, _ in urllib.parse.parse_qsl(tool["path"].partition("?")[2])}
        if schemes:
            known.add(("header", "authorization"))
        out = [f"the header {name}: {value}" for name, value in seen.headers if ("header", name.lower()) not in known and name.lower() != "cookie"]
        for name in request.query:
            if ("query", name.lower()) not in known and ("query", name.partition("[")[0].lower()) not in known:
                out.append(f"`{name}` in the query")
        return [f"unexpected: {what}" for what in out]


def missing(name, given, pairs):
    """Reports an argument that is missing in the request. The library would read the document's default, which may be equal."""
    if pruned(given) is None or isinstance(given, dict):
        return []
    there = any(key == name or key.startswith(f"{name}[") for key in pairs)
    return [] if there else [f"{name} is not in the query or form"]


def simpler(item):
    """A path item without servers, and without the headers that the standard excludes from parameters."""
    def operation(inner):
        inner = {name: value for name, value in inner.items() if name != "servers"}
        if "parameters" in inner:
            inner["parameters"] = [one for one in inner["parameters"] if not ignored(one)]
        return inner

    def ignored(parameter):
        return parameter.get("in") == "header" and parameter.get("name", "").lower() in ("accept", "content-type", "authorization")

    return {name: operation(inner) if isinstance(inner, dict) else inner for name, inner in item.items() if name != "servers"}


def media_types(document):
    """The media types of all bodies."""
    bodies = list(document.get("components", {}).get("requestBodies", {}).values())
    for item in document["paths"].values():
        bodies += [operation["requestBody"] for operation in item.values() if isinstance(operation, dict) and "requestBody" in operation]
    return {name for body in bodies for name in body.get("content", {})}


def deep(explode, name, schema_type, location):
    """Parses `name[a][0]=b`. OpenAPI does not define lists and deeper objects, and the library reads one level."""
    if name in location:
        return location[name]
    tree = {}
    for key, value in location.items(multi=True):
        if key.startswith(f"{name}["):
            at, *path = [name, *re.findall(r"\[([^\]]*)\]", key[len(name):])]
            inner = tree
            for step in path:
                inner = inner.setdefault(at, {})
                at = step
            inner[at] = value
    return listed(tree[name])


def listed(tree):
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: listed(inner) for key, inner in tree.items()}


def pruned(value):
    if isinstance(value, dict):
        inner = {name: pruned(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one is not None} or None
    if isinstance(value, list):
        return [one for one in map(pruned, value) if one is not None] or None
    return value


def parameters(seen):
    query = urllib.parse.parse_qsl(seen.target.partition("?")[2], keep_blank_values=True)
    cookies = http.cookies.SimpleCookie()
    cookies.load(dict(seen.headers).get("Cookie", ""))
    cookies = {name: urllib.parse.unquote(morsel.value) for name, morsel in cookies.items()}
    return RequestParameters(query=ImmutableMultiDict(query), header=Headers(seen.headers), cookie=ImmutableMultiDict(cookies))


def plain(value):
    """Values as serialized: everything is text, and 1 equals 1.0 and "1"."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def error_chain(error):
    """The messages of an error and its causes."""
    words = []
    while error is not None and len(words) < 5:
        words.append(f"{type(error).__name__}: {error}")
        for inner in [*getattr(error, "errors", []), *getattr(error, "schema_errors", [])][:3]:
            words.append(error_chain(inner))
        error = error.__cause__
    return " <- ".join(words)[:600]
