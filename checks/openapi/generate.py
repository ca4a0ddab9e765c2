"""Generates arguments for a tool's schema.

In: a JSON Schema 2020-12 whose references point into its own `$defs`, and a seed. Out: arguments; the same for the same seed.
Every value is validated against the schema with `jsonschema`. Texts contain characters that are awkward in URLs.
"""
import random
import re
import string
import sys

import jsonschema
import rstr
TEXTS = ["plain", "two words", "a/b?c=d&e#f", "naïve-ü", "100%", "x+y", "semi;colon", "<tag>", "a..b", "quote\"d"]
FORMATS = {
    "date": "2024-02-29", "date-time": "2024-02-29T12:30:00Z", "uuid": "6f1c2f3e-8a52-4a43-8f5e-1c2d3e4f5a6b", "time": "12:30:00Z",
    "email": "ann@example.org", "uri": "https://example.org/a?b=c", "url": "https://example.org/a", "ipv4": "192.0.2.7", "ipv6": "2001:db8::1",
    "hostname": "example.org", "byte": "aGVsbG8=", "binary": "bytes", "password": "secret", "timestamp": "2024-02-29T12:30:00Z",
    "int64": "7", "int32": "7", "decimal": "1.5", "iso-date": "2024-02-29", "uri-reference": "/a/b",
}


class Hopeless(Exception):
    """No arguments could be found."""


def arguments(schema, seed, tries=30):
    """Arguments for a tool, with fewer optional ones at each attempt."""
    validator = jsonschema.Draft202012Validator(schema)
    for turn in range(tries):
        generator = Generator(schema, random.Random(f"{seed}/{turn}"), optional=max(0.0, 0.6 - turn * 0.05), deepest=max(2, 5 - turn // 4))
        try:
            value = generator.value(schema, 0)
        except (Hopeless, RecursionError):
            continue
        if validator.is_valid(value):
            return value
    raise Hopeless(f"no arguments for {str(schema)[:200]}")


class Generator:
    def __init__(self, root, chance, optional, deepest):
        self.root, self.chance, self.optional, self.deepest = root, chance, optional, deepest

    def value(self, schema, depth):
        if schema is True or schema == {}:
            return "anything"
        if schema is False or depth > 12:
            raise Hopeless
        schema = self.merged(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.chance.choice([one for one in schema["enum"] if one is not None] or [None])
        kinds = schema.get("type") or self.guessed(schema)
        kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"] or ["null"]
        return getattr(self, "a_" + self.chance.choice(kinds))(schema, depth)

    def merged(self, schema, steps=0):
        """A schema without references and combinations: picks one alternative of each choice and merges all layers."""
        if steps > 20:
            raise Hopeless
        schema = dict(schema)
        layers = []
        if "$ref" in schema:
            target = self.root
            for part in schema.pop("$ref").removeprefix("#/").split("/"):
                target = target[part]
            layers.append(target)
        layers += schema.pop("allOf", [])
        for word in ("oneOf", "anyOf"):
            forms = [form for form in schema.pop(word, []) if form != {"type": "null"}]
            if forms:
                layers.append(self.chance.choice(forms))
        for layer in layers:
            if layer is True:
                continue
            if layer is False:
                raise Hopeless
            schema = self.laid(schema, self.merged(layer, steps + 1))
        return schema

    @staticmethod
    def laid(one, other):
        both = {**other, **one}
        if "properties" in one and "properties" in other:
            both["properties"] = {**other["properties"], **one["properties"]}
            for name in set(one["properties"]) & set(other["properties"]):
                both["properties"][name] = {"allOf": [one["properties"][name], other["properties"][name]]}
        if "required" in one and "required" in other:
            both["required"] = [*one["required"], *other["required"]]
        if "enum" in one and "enum" in other:
            both["enum"] = [value for value in one["enum"] if value in other["enum"]]
            if not both["enum"]:
                raise Hopeless
        for word, choose in (("minimum", max), ("minLength", max), ("minItems", max), ("maximum", min), ("maxLength", min), ("maxItems", min)):
            if word in one and word in other:
                both[word] = choose(one[word], other[word])
        return both

    @staticmethod
    def guessed(schema):
        if "properties" in schema or "additionalProperties" in schema or "required" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        if "minimum" in schema or "maximum" in schema:
            return "number"
        return "string"

    def a_object(self, schema, depth):
        required = schema.get("required", [])
        value = {}
        for name, inner in schema.get("properties", {}).items():
            if name in required or (depth < self.deepest and self.chance.random() < self.optional / (depth + 1)):
                try:
                    value[name] = self.value(inner, depth + 1)
                except Hopeless:
                    if name in required:
                        raise
        for name in required:
            if name not in value:
                value[name] = "anything"
        others = schema.get("additionalProperties")
        while len(value) < schema.get("minProperties", 0):
            if others is False:
                raise Hopeless
            value[f"key{len(value)}"] = self.value(others if isinstance(others, dict) else {}, depth + 1)
        return value

    def a_array(self, schema, depth):
        if "prefixItems" in schema:
            return [self.value(inner, depth + 1) for inner in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        wanted = max(least, 1 if depth >= self.deepest else self.chance.choice([1, 2]))
        wanted = min(wanted, schema.get("maxItems", wanted))
        values = []
        for _ in range(wanted * 5):
            if len(values) == wanted:
                break
            one = self.value(schema.get("items", {}), depth + 1)
            if not schema.get("uniqueItems") or one not in values:
                values.append(one)
        return values

    def a_string(self, schema, depth):
        if "pattern" in schema:
            # Bound repetitions by the pattern's own counts: long texts take Python's engine very long if a pattern is
            # ambiguous.
            counts = [int(number) for number in re.findall(r"[{,](\d+)}", schema["pattern"])]
            sys.modules["rstr.xeger"].STAR_PLUS_LIMIT = max([6, *counts])
            try:
                return rstr.Rstr(self.chance).xeger(schema["pattern"].replace("(?i)", ""))[: schema.get("maxLength", 200)]
            except Exception:
                raise Hopeless from None
        text = FORMATS.get(schema.get("format")) or self.chance.choice(TEXTS)
        text += "".join(self.chance.choices(string.ascii_lowercase, k=max(0, schema.get("minLength", 1) - len(text))))
        return text[: schema.get("maxLength", 1000)] or "x"

    def a_integer(self, schema, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 51) - 1)
        step = int(schema.get("multipleOf", 1)) or 1
        number = self.chance.randint(int(-(-low // 1)), max(int(-(-low // 1)), int(min(high, low + 50))))
        return -(-number // step) * step

    def a_number(self, schema, depth):
        return self.a_integer(schema, depth) if "multipleOf" in schema or self.chance.random() < 0.5 else self.a_fraction(schema)

    def a_fraction(self, schema):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 10))
        return round(low + (high - low) * 0.375, 3)

    def a_boolean(self, schema, depth):
        return self.chance.random() < 0.5

    def a_null(self, schema, depth):
        return None
