//! Lists of servers, from their JSON text to tools.

#![expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]

mod servers;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolhub_core::{Glob, ToolHub};

use super::*;
use crate::mcp::list_kind::ListKind;

fn raw_list(text: &str) -> RawList {
    match ListReader::new(ListKind::Tools, 1_000).add_page(text).unwrap() {
        Step::Done(list) => list,
        Step::Next(..) => panic!("one page is the whole list"),
    }
}

fn globs(patterns: &[&str]) -> Vec<Glob> {
    patterns.iter().map(|pattern| Glob::new(*pattern).unwrap()).collect()
}

fn options() -> CatalogOptions {
    CatalogOptions { prefix: "fs".into(), ..CatalogOptions::default() }
}

fn read_with(tools: Value, options: &CatalogOptions) -> Catalog {
    read_list(&raw_list(&json!({ "tools": tools }).to_string()), options)
}

fn read(tools: Value) -> Catalog {
    read_with(tools, &options())
}

fn one(tool: Value) -> ListedTool {
    let mut catalog = read(json!([tool]));
    assert_eq!(catalog.quarantined, []);
    catalog.tools.remove(0)
}

fn names(catalog: &Catalog) -> Vec<&str> {
    catalog.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// The only tool, quarantined.
#[track_caller]
fn check_quarantine(tool: Value, name: &str, reason: &str) {
    let catalog = read(json!([tool, {"name": "sound"}]));
    assert_eq!(names(&catalog), ["fs__sound"]);
    let [quarantined] = &catalog.quarantined[..] else { panic!("{:?}", catalog.quarantined) };
    assert!(quarantined.original_name.starts_with(name), "{quarantined:?}");
    assert!(quarantined.reason.contains(reason), "{quarantined:?}");
}

#[test]
fn one_odd_tool_is_quarantined_alone_with_its_reason() {
    check_quarantine(json!(7), "#1", "not an object");
    check_quarantine(json!([]), "#1", "not an object");
    check_quarantine(json!({}), "#1", "has no name");
    check_quarantine(json!({"name": null}), "#1", "has no name");
    check_quarantine(json!({"name": 7}), "#1", "has no name");
    check_quarantine(json!({"name": ""}), "#1", "empty");
    check_quarantine(json!({"name": "x".repeat(2_000)}), "xxx", "2000 bytes");
    check_quarantine(json!({"name": "a", "description": "x".repeat(300_000)}), "a", "300029 bytes, at most 262144");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    check_quarantine(
        json!({"name": "a", "annotations": deep}),
        "a",
        "its `annotations` is refused: the JSON is nested",
    );
    let many: Vec<u8> = vec![0; 110_000];
    check_quarantine(json!({"name": "a", "inputSchema": {"enum": many}}), "a", "more than 100000 values");
}

#[test]
fn schemas_that_cannot_be_used_are_quarantined() {
    let with = |schema: Value| json!({"name": "a", "inputSchema": schema});
    let check = |schema: Value, reason: &str| check_quarantine(with(schema), "a", reason);
    check(json!("object"), "not an object");
    check(json!(true), "not an object");
    check(json!({"type": "string"}), "must be an object");
    check(json!({"type": ["string", "null"]}), "must be an object");
    check(json!({"type": "objekt"}), "its `inputSchema` is refused");
    check(json!({"properties": {"x": {"type": 7}}}), "not a valid JSON Schema");
    check(json!({"properties": {"x": {"$ref": "https://example.com/x.json"}}}), "another document");
    check(json!({"properties": {"x": {"$ref": "#/definitions/none"}}}), "refers to nothing");
    check(json!({"$ref": "#"}), "circular");
    check(json!({"properties": {"x": {"description": "y".repeat(70_000)}}}), "at most 65536");
    let deep = (0..40).fold(json!({}), |inner, _| json!({"properties": {"x": inner}}));
    check(deep, "deeper than 32");
    let defs: serde_json::Map<String, Value> = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/definitions/d{}", n + 1)});
            (format!("d{n}"), json!({"properties": {"a": next, "b": next}}))
        })
        .chain([("d40".to_owned(), json!({}))])
        .collect();
    check(json!({"properties": {"x": {"$ref": "#/definitions/d0"}}, "definitions": defs}), "too many subschemas");
}

#[test]
fn annotations_for_headers_matter_only_where_there_are_headers() {
    let tools = || json!([{"name": "a", "inputSchema": {"properties": {"x": {"type": "string", "x-mcp-header": ""}}}}]);
    assert_eq!(names(&read(tools())), ["fs__a"]);
    let over_http = read_with(tools(), &CatalogOptions { param_headers: true, ..options() });
    assert_eq!(over_http.quarantined[0].reason, "`x-mcp-header` of `x` is not the name of a header");
}

#[test]
fn a_schema_may_be_missing_or_say_less_than_it_should() {
    for tool in [
        json!({"name": "a"}),
        json!({"name": "a", "inputSchema": null}),
        json!({"name": "a", "inputSchema": {}}),
        json!({"name": "a", "inputSchema": {"type": ["object", "null"]}}),
        json!({"name": "a", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#"}}),
    ] {
        assert_eq!(one(tool).parameters.value(), &json!({"type": "object"}));
    }
}

#[test]
fn older_drafts_are_upgraded_and_unsupported_patterns_left_out() {
    let tool = one(json!({"name": "a", "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"when": {"$ref": "#/definitions/When"}, "code": {"type": "string", "pattern": "^(?!00)\\d+$"}},
        "definitions": {"When": {"type": "array", "items": [{"type": "string"}]}},
    }, "outputSchema": {"type": "array", "items": {"pattern": "(?<=a)b"}}}));
    let expected = json!({
        "type": "object",
        "properties": {"when": {"$ref": "#/$defs/When"}, "code": {"type": "string"}},
        "$defs": {"When": {"type": "array", "prefixItems": [{"type": "string"}]}},
    });
    assert_eq!(tool.parameters.value(), &expected);
    assert_eq!(tool.output.unwrap().value(), &json!({"type": "array", "items": {}}));
    assert_eq!(tool.notes, ["the pattern `^(?!00)\\d+$` is not checked", "the pattern `(?<=a)b` is not checked"]);
}

#[test]
fn an_output_schema_that_cannot_be_used_is_left_out() {
    let tool = one(json!({"name": "a", "outputSchema": {"$ref": "https://example.com"}}));
    assert!(tool.output.is_none());
    assert!(tool.notes[0].starts_with("its `outputSchema` is left out: `https://example.com`"), "{:?}", tool.notes);
}

#[test]
fn texts_lose_hidden_characters_and_are_bounded() {
    let tool = one(json!({
        "name": "a",
        "title": "Re\u{202e}ad\u{7}",
        "description": format!("Reads\u{e0041}\u{200b}.\n\t{}", "word ".repeat(2_000)),
        "inputSchema": {"properties": {"p": {"description": "a\u{e0042}b", "enum": ["\u{200b}"]}}},
    }));
    assert_eq!(tool.annotations.title.as_deref(), Some("Read"));
    assert!(tool.description.starts_with("Reads.\n\tword word") && tool.description.ends_with("word…"));
    assert!(tool.description.chars().count() <= 8_001);
    assert_eq!(tool.parameters.value()["properties"]["p"], json!({"description": "ab", "enum": ["\u{200b}"]}));
    assert_eq!(tool.notes.len(), 3, "{:?}", tool.notes);
    let odd = one(json!({"name": "a", "title": 7, "description": ["x"], "annotations": {"title": "T"}}));
    assert_eq!((odd.description.as_str(), odd.annotations.title), ("", None));
    assert_eq!(one(json!({"name": "a", "annotations": {"title": "T"}})).annotations.title.as_deref(), Some("T"));
}

#[test]
fn secrets_of_the_server_are_masked_in_definitions() {
    let options = CatalogOptions { secrets: Arc::new(SecretMask::new(["s3cr3t"])), ..options() };
    let tool =
        json!({"name": "a", "description": "key s3cr3t", "inputSchema": {"properties": {"k": {"default": "s3cr3t"}}}});
    let tool = read_with(json!([tool]), &options).tools.remove(0);
    assert_eq!(tool.description, "key ••••");
    assert!(!format!("{:?} {:?}", tool.parameters, tool.definition).contains("s3cr3t"));
}

#[test]
fn names_are_legal_stable_and_unique() {
    let long = "x".repeat(100);
    let catalog =
        read(json!([{"name": "b.c"}, {"name": "a"}, {"name": long}, {"name": "天气"}, {"name": "a", "title": "2"}]));
    assert_eq!(catalog.tools.len(), 4);
    for tool in &catalog.tools {
        assert_eq!(tool.name, ToolName::imported("fs", &tool.original_name));
    }
    assert_eq!(catalog.tools[0].name.as_str(), "fs__a");
    assert_eq!(catalog.tools[0].annotations.title, None, "the first one of the list stays");
    let conflict = "the server lists another tool with the same name";
    assert_eq!(catalog.quarantined, [Quarantined { original_name: "a".into(), reason: conflict.into() }]);
    let plain = read_with(json!([{"name": "read"}]), &CatalogOptions::default());
    assert_eq!(names(&plain), ["read"]);
    // A name that ends like the one made for another tool.
    let made = ToolName::imported("fs", "b.c").to_string().replace("fs__", "");
    let catalog = read(json!([{"name": made}, {"name": "b.c"}]));
    assert_eq!(catalog.tools[0].original_name, "b.c");
    let expected = format!("its name here would be `fs__{made}`, which the tool \"b.c\" of this server already has");
    assert_eq!(catalog.quarantined, [Quarantined { original_name: made, reason: expected }]);
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    let tools = [json!({"name": "c"}), json!({"name": "a"}), json!({}), json!({"name": "b", "inputSchema": 7})];
    let forward = read(tools.to_vec().into());
    let backward = read(tools.iter().rev().cloned().collect());
    assert_eq!(names(&forward), ["fs__a", "fs__c"]);
    assert_eq!(names(&forward), names(&backward));
    assert_eq!(forward.quarantined.len(), backward.quarantined.len());
}

#[test]
fn the_owner_chooses_tools_by_the_names_of_the_server() {
    let options = CatalogOptions {
        include: globs(&["read_*", "list", "none"]),
        exclude: globs(&["*_secret"]),
        read_only: globs(&["read_*"]),
        idempotent: globs(&["list", "missing*"]),
        ..options()
    };
    let tools = json!([
        {"name": "read_file"}, {"name": "read_secret"}, {"name": "list"}, {"name": "write"},
        {"name": "read_log", "annotations": {"readOnlyHint": false}},
    ]);
    let catalog = read_with(tools, &options);
    assert_eq!(names(&catalog), ["fs__list", "fs__read_file", "fs__read_log"]);
    assert_eq!(catalog.excluded, 2);
    let notes = [
        "`none` in `include` matches no tool of the server",
        "`missing*` in `idempotent` matches no tool of the server",
    ];
    assert_eq!(catalog.notes, notes);
    let effects: Vec<_> =
        catalog.tools.iter().map(|tool| (tool.annotations.read_only, tool.annotations.idempotent)).collect();
    assert_eq!(effects, [(false, true), (true, true), (false, false)]);
}

#[test]
fn the_definition_covers_what_the_server_sent_and_nothing_else() {
    let tool = |change: fn(&mut Value)| {
        let mut tool = json!({"name": "a", "title": "A", "description": "d", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        change(&mut tool);
        one(tool).definition
    };
    let same = tool(|_| ());
    for other in [
        |tool: &mut Value| tool["icons"] = json!([{"src": "x"}]),
        |tool: &mut Value| tool["_meta"] = json!({"x": 1}),
        |tool: &mut Value| tool["execution"] = json!(null),
    ] {
        assert_eq!(tool(other), same);
    }
    for other in [
        |tool: &mut Value| tool["name"] = json!("b"),
        |tool: &mut Value| tool["title"] = json!(null),
        |tool: &mut Value| tool["description"] = json!("d\u{200b}"),
        |tool: &mut Value| tool["inputSchema"]["$schema"] = json!("x"),
        |tool: &mut Value| tool["outputSchema"] = json!({"type": "string"}),
        |tool: &mut Value| tool["annotations"]["readOnlyHint"] = json!(false),
    ] {
        assert_ne!(tool(other), same);
    }
}

#[tokio::test]
async fn the_tools_of_known_servers_can_all_be_registered() {
    for (server, list) in servers::LISTS {
        let options = CatalogOptions { prefix: (*server).into(), ..CatalogOptions::default() };
        let catalog = super::read(raw_list(list), options).await;
        assert_eq!((&catalog.quarantined, &catalog.notes), (&vec![], &vec![]), "{server}");
        struct Never;
        impl toolhub_core::Executor for Never {
            fn execute<'a>(
                &'a self,
                _: toolhub_core::Job<'a>,
            ) -> toolhub_core::BoxFuture<'a, Result<toolhub_core::Reply, toolhub_core::ToolError>> {
                Box::pin(async { Err(toolhub_core::ToolError::new("not called")) })
            }
        }
        let executor = std::sync::Arc::new(Never);
        let hub = catalog.tools.iter().fold(ToolHub::builder(), |hub, tool| {
            assert_eq!(tool.notes, Vec::<String>::new(), "{}", tool.name);
            hub.tool(tool.builder(server).executor(executor.clone()))
        });
        let hub = hub.build().await.unwrap();
        assert_eq!(hub.list(&toolhub_core::ToolFilter::default()).len(), catalog.tools.len());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = "name|title|description|inputSchema|outputSchema|annotations|readOnlyHint|type|properties|items|\\$ref|\\$id|definitions|pattern|oneOf|not|required|enum";
    let text = prop_oneof!["object|string|array|#|#/definitions/a|\\(\\?!x\\)", ".{0,6}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word, inner, 0..6)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn no_list_breaks_the_catalog(tools in prop::collection::vec(any_json(), 0..4), input in any_json(), output in any_json()) {
        let mut tools = tools;
        tools.push(json!({"name": "a", "inputSchema": input, "outputSchema": output}));
        let count = tools.len();
        let catalog = read(tools.into());
        prop_assert_eq!(catalog.tools.len() + catalog.quarantined.len(), count);
        for pair in catalog.tools.windows(2) {
            pair[0].definition.differences(&pair[1].definition);
        }
    }
}
