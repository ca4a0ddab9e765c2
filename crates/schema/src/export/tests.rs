//! Properties of all export formats, tested on awkward schemas.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use toolhub_types::tool::{Annotations, DependsOn, Kind, Metadata, ToolName};

fn tool(name: &str, description: &str, parameters: Value) -> Definition {
    let name = ToolName::new(name).unwrap();
    Definition {
        id: Definition::derive_id(&Kind::Stateless, &name, None),
        name,
        kind: Kind::Stateless,
        description: description.to_owned(),
        parameters,
        output_schema: None,
        annotations: Annotations::default(),
        metadata: Metadata::default(),
        depends_on: DependsOn::default(),
        origin: None,
        config: Value::Null,
    }
}

/// Schemas that are hard to export; `checks/exports/check.py` validates the exports with the providers' official packages.
fn corpus() -> Vec<Value> {
    serde_json::from_str(include_str!("../../../../checks/exports/awkward.json")).unwrap()
}

/// For each schema of the corpus, calls that it accepts.
fn calls() -> impl Iterator<Item = Vec<Value>> {
    corpus().into_iter().map(|entry| entry["calls"].as_array().cloned().unwrap_or_default())
}

fn awkward() -> Vec<Definition> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let definition = |entry: &Value| {
        let mut tool = tool(&text(&entry["name"]), &text(&entry["description"]), entry["parameters"].clone());
        tool.output_schema = entry.get("output_schema").cloned();
        tool.annotations.title = entry["title"].as_str().map(str::to_owned);
        tool
    };
    corpus().iter().map(definition).collect()
}

fn schema_in(format: Format, entry: &Value) -> Value {
    match format {
        Format::Anthropic => entry["input_schema"].clone(),
        Format::OpenAi => entry["function"]["parameters"].clone(),
        Format::OpenAiResponses | Format::Gemini => entry["parameters"].clone(),
        Format::Mcp => entry["inputSchema"].clone(),
    }
}

#[track_caller]
fn check(format: Format, tool: &Definition, expected: Value) {
    assert_eq!(export(format, [tool]), [expected], "in {format}");
}

#[test]
fn each_format_has_its_own_shape() {
    let echo = tool("echo", "Says it again.", json!({"type": "object", "properties": {"text": {"type": "string"}}}));
    let schema = &echo.parameters;
    check(Format::Anthropic, &echo, json!({"name": "echo", "description": "Says it again.", "input_schema": schema}));
    let function = json!({"name": "echo", "description": "Says it again.", "parameters": schema, "strict": false});
    check(Format::OpenAi, &echo, json!({"type": "function", "function": function}));
    let mut flat = function;
    flat["type"] = json!("function");
    check(Format::OpenAiResponses, &echo, flat);
    check(
        Format::Gemini,
        &echo,
        json!({"name": "echo", "description": "Says it again.", "parameters": {"type": "OBJECT", "properties": {"text": {"type": "STRING"}}}}),
    );
    let hints = json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true});
    check(
        Format::Mcp,
        &echo,
        json!({"name": "echo", "description": "Says it again.", "inputSchema": schema, "annotations": hints}),
    );
}

#[test]
fn a_tool_without_arguments_and_description_is_still_accepted_everywhere() {
    let ping = tool("ping", " ", json!({"type": "object"}));
    let none = json!({"type": "object", "properties": {}});
    check(Format::Anthropic, &ping, json!({"name": "ping", "input_schema": none}));
    let function = json!({"name": "ping", "parameters": none, "strict": false});
    check(Format::OpenAi, &ping, json!({"type": "function", "function": function}));
    check(Format::Gemini, &ping, json!({"name": "ping", "description": "ping"}));
}

#[test]
fn mcp_hears_titles_hints_and_results_that_are_objects() {
    let mut read = tool("read", "Reads.", json!(true));
    read.annotations = Annotations {
        title: Some("Read it".into()),
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    let entry = |output: Option<Value>| {
        let mut entry = json!({
            "name": "read", "title": "Read it", "description": "Reads.", "inputSchema": {"type": "object"},
            "annotations": {"title": "Read it", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
        });
        if let Some(output) = output {
            entry["outputSchema"] = output;
        }
        entry
    };
    read.output_schema = Some(json!({"type": "array", "items": {"type": "string"}}));
    check(Format::Mcp, &read, entry(None));
    read.output_schema = Some(json!({"type": "object", "properties": {"text": {"type": "string"}}}));
    check(Format::Mcp, &read, entry(read.output_schema.clone()));
}

#[test]
fn mcp_keeps_references_only_where_writing_them_out_would_lose_something() {
    let schema =
        |child: Value| json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": child}});
    let plain = tool("plain", "", schema(json!({"type": "string"})));
    let exported = export(Format::Mcp, [&plain]);
    assert_eq!(exported[0]["inputSchema"], json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let tree = tool("tree", "", schema(json!({"type": "array", "items": {"$ref": "#/$defs/A"}})));
    assert_eq!(export(Format::Mcp, [&tree])[0]["inputSchema"], tree.parameters);
}

#[test]
fn tools_come_sorted_by_name_and_the_same_every_time() {
    let tools = awkward();
    let mut names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    for format in Format::ALL {
        let exported = export(format, &tools);
        let reversed = export(format, tools.iter().rev());
        assert_eq!(serde_json::to_string(&exported).unwrap(), serde_json::to_string(&reversed).unwrap(), "in {format}");
        let name = |entry: &Value| entry["name"].as_str().or(entry["function"]["name"].as_str()).unwrap().to_owned();
        assert_eq!(exported.iter().map(name).collect::<Vec<_>>(), names, "in {format}");
    }
}

#[test]
fn no_provider_sees_a_union_at_the_root_of_an_awkward_schema() {
    for format in [Format::Anthropic, Format::OpenAi, Format::OpenAiResponses] {
        for entry in export(format, &awkward()) {
            let schema = schema_in(format, &entry);
            assert_eq!(schema["type"], "object", "{format}: {entry}");
            assert!(schema["properties"].is_object(), "{format}: {entry}");
            for unsupported in ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "$defs"] {
                assert!(schema.get(unsupported).is_none(), "{format} has {unsupported}: {entry}");
            }
        }
    }
}

#[test]
fn what_a_provider_is_told_still_fits_calls_the_full_schema_accepts() {
    let mut checked = 0;
    for (tool, calls) in awkward().iter().zip(calls()) {
        for call in &calls {
            assert!(accepts(&tool.parameters, call), "{}: the full schema refuses {call}", tool.name);
            for format in [Format::Anthropic, Format::OpenAi, Format::OpenAiResponses, Format::Mcp] {
                let exported = schema_in(format, &export(format, [tool])[0]);
                assert!(accepts(&exported, call), "{} in {format} refuses {call}: {exported}", tool.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} calls were checked");
}

fn accepts(schema: &Value, call: &Value) -> bool {
    jsonschema::validator_for(schema).unwrap().is_valid(call)
}

/// Nested keywords with values of all types, valid and invalid.
fn any_schema() -> impl Strategy<Value = Value> {
    let kinds = ["string", "null", "object", "array", "integer", "file"].map(Value::from);
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/properties/a"})),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::sample::select(kinds.to_vec()),
        proptest::sample::select(kinds.to_vec()).prop_map(|kind| json!({ "type": kind })),
    ];
    let keywords = [
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "enum",
        "const",
        "required",
        "additionalProperties",
        "prefixItems",
        "$ref",
        "$defs",
        "description",
        "minimum",
        "exclusiveMaximum",
        "format",
        "if",
        "dependencies",
    ];
    leaf.prop_recursive(5, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[ab]", inner.clone(), 0..3).prop_map(|map| json!(map)),
            proptest::collection::btree_map(proptest::sample::select(keywords.to_vec()), inner, 0..5)
                .prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_however_broken_stops_an_export(schema in any_schema()) {
        let broken = tool("broken", "", schema);
        for format in Format::ALL {
            let entry = &export(format, [&broken])[0];
            prop_assert!(entry.is_object());
            prop_assert!(entry.to_string().len() < 1_000_000);
        }
    }
}
