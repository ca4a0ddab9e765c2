//! OpenAPI import: names, arguments, annotations, server URLs, credentials and warnings.
#![expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]

mod requests;
mod schemas;

use serde_json::{Value, json};
use toolhub_connect::openapi::{self, ImportError, ImportedDocument, Options, Plan};

/// A document of one version with these paths.
fn document(version: &str, paths: Value) -> Value {
    json!({
        "openapi": version,
        "info": {"title": "Pets", "version": "7"},
        "servers": [{"url": "https://pets.example/v1"}],
        "paths": paths,
    })
}

#[track_caller]
fn import(document: &Value, options: &Options) -> ImportedDocument {
    openapi::import_value(document, options).unwrap_or_else(|error| panic!("{error}"))
}

/// The only plan of a document with one operation.
#[track_caller]
fn plan(document: &Value) -> Plan {
    let imported = import(document, &Options::default());
    assert_eq!(imported.plans.len(), 1, "{:?}", imported.warnings);
    imported.plans.into_iter().next().expect("one")
}

/// The warnings of an import.
fn warnings(imported: &ImportedDocument) -> Vec<String> {
    imported.warnings.iter().map(ToString::to_string).collect()
}

fn tool_names(imported: &ImportedDocument) -> Vec<&str> {
    imported.plans.iter().map(|plan| plan.name.as_str()).collect()
}

fn options_with_prefix(prefix: &str) -> Options {
    Options { prefix: Some(prefix.into()), ..Options::default() }
}

#[test]
fn one_tool_for_each_operation_named_by_its_id_or_by_method_and_path() {
    let document = document(
        "3.0.3",
        json!({
            "/pets": {"get": {"operationId": "listPets"}, "post": {}},
            "/pets/{petId}/toys": {"parameters": [{"name": "petId", "in": "path", "required": true}], "get": {}},
            "/x-ray": {"delete": {"operationId": "pets/x ray"}},
            "x-internal": {"get": {}},
        }),
    );
    let imported = import(&document, &options_with_prefix("pet"));
    assert_eq!((imported.title.as_str(), imported.version.as_str()), ("Pets", "7"));
    let found = tool_names(&imported);
    assert_eq!(found, ["pet__listPets", "pet__post_pets", "pet__get_pets_petId_toys", "pet__pets_x_ray"]);
    assert_eq!(imported.plans[3].original_name, "pets/x ray");
    assert_eq!(tool_names(&import(&document, &Options::default()))[0], "listPets");
    // The same each time.
    assert_eq!(tool_names(&import(&document, &options_with_prefix("pet"))), found);
}

#[test]
fn two_operations_of_one_name_are_told_apart_and_long_names_are_cut() {
    let long = "x".repeat(90);
    let imported = import(
        &document(
            "3.1.0",
            json!({
                "/a": {"get": {"operationId": "same"}},
                "/b": {"get": {"operationId": "same"}, "put": {"operationId": long}},
            }),
        ),
        &options_with_prefix("p"),
    );
    let found = tool_names(&imported);
    assert_eq!(found[0], "p__same");
    assert!(found[1].starts_with("p__same_GET__b_"), "{found:?}");
    assert_eq!(found[2].len(), 64);
    assert_ne!(imported.plans[0].original_name, imported.plans[1].original_name);
}

#[test]
fn an_owner_chooses_operations_by_patterns_over_their_names() {
    let document = document(
        "3.0.0",
        json!({
            "/a": {"get": {"operationId": "pets/list"}, "post": {"operationId": "pets/create"}},
            "/b": {"get": {"operationId": "owners/list"}, "delete": {"operationId": "owners/delete"}},
        }),
    );
    let check = |include: &[&str], exclude: &[&str], expected: &[&str]| {
        let texts = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let options = Options { include: texts(include), exclude: texts(exclude), ..Options::default() };
        let imported = import(&document, &options);
        let found: Vec<_> = imported.plans.iter().map(|plan| plan.original_name.as_str()).collect();
        assert_eq!(found, expected, "{include:?} {exclude:?}");
        assert_eq!(imported.filtered + found.len(), 4);
        imported
    };
    check(&[], &[], &["pets/list", "pets/create", "owners/list", "owners/delete"]);
    check(&["pets/*"], &[], &["pets/list", "pets/create"]);
    check(&["*list"], &["owners*"], &["pets/list"]);
    // Globs also match the sanitized name of the tool.
    check(&["pets_create*"], &[], &["pets/create"]);
    // A glob that matches nothing is most likely a mistake.
    let imported = check(&["pets/*", "owner/*"], &["pet/*"], &["pets/list", "pets/create"]);
    assert_eq!(
        warnings(&imported),
        ["`owner/*` in `include` matches no operation", "`pet/*` in `exclude` matches no operation"]
    );
    let invalid = Options { include: vec![String::new()], ..Options::default() };
    let error = openapi::import_value(&document, &invalid).unwrap_err();
    assert!(matches!(error, ImportError::Setting { setting: "include", .. }), "{error}");
}

#[test]
fn what_an_operation_does_to_the_world_is_told_by_its_method() {
    let paths = json!({"/a": {
        "get": {}, "head": {}, "options": {}, "post": {}, "put": {}, "patch": {}, "delete": {},
    }});
    for plan in import(&document("3.1.0", paths), &Options::default()).plans {
        let own = &plan.annotations;
        let annotations = (own.read_only, own.destructive, own.idempotent, own.open_world);
        let expected = match plan.method.as_str() {
            "GET" | "HEAD" | "OPTIONS" => (true, false, true, true),
            "PUT" | "DELETE" => (false, true, true, true),
            _ => (false, true, false, true),
        };
        assert_eq!(annotations, expected, "{}", plan.method);
    }
}

#[test]
fn a_description_has_the_summary_and_says_when_an_operation_is_deprecated() {
    let described = |operation: Value| plan(&document("3.0.0", json!({"/a": {"get": operation}})));
    let both = described(
        json!({"summary": "Lists pets", "description": "All of them.", "tags": ["pets"], "deprecated": true}),
    );
    assert_eq!(both.description, "Deprecated. Lists pets\n\nAll of them.");
    assert_eq!((both.annotations.title.as_deref(), &both.tags[..]), (Some("Lists pets"), &["pets".to_owned()][..]));
    assert_eq!(described(json!({})).description, "GET /a");
    assert!(described(json!({"description": "long ".repeat(900)})).description.chars().count() <= 1_001);
}

#[test]
fn parameters_of_a_path_hold_unless_the_operation_has_its_own() {
    let plan = plan(&document(
        "3.0.0",
        json!({"/pets/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
                {"name": "lang", "in": "header", "schema": {"type": "string"}, "description": "of the path"},
            ],
            "get": {"parameters": [
                {"name": "lang", "in": "header", "required": true, "schema": {"type": "string", "enum": ["de", "en"]}},
                {"name": "id", "in": "query", "schema": {"type": "integer", "default": 3}, "description": "Another one"},
                {"name": "Accept", "in": "header", "schema": {"type": "string"}},
                {"name": "filter[age]", "in": "query", "schema": {"type": "integer"}, "deprecated": true},
            ]},
        }}),
    ));
    assert_eq!(
        plan.schema,
        json!({
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "lang": {"type": "string", "enum": ["de", "en"]},
                "id_query": {"type": "integer", "default": 3, "description": "Another one"},
                "filter_age": {"type": "integer", "deprecated": true},
            },
            "required": ["id", "lang"],
            "additionalProperties": false,
        })
    );
    let sent: Vec<_> = plan.parameters.iter().map(|one| (one.argument.as_str(), one.name.as_str())).collect();
    assert_eq!(sent, [("id", "id"), ("lang", "lang"), ("id_query", "id"), ("filter_age", "filter[age]")]);
}

/// The names of a plan's arguments.
fn argument_names(plan: &Plan) -> Vec<&str> {
    plan.schema["properties"].as_object().into_iter().flat_map(|all| all.keys().map(String::as_str)).collect()
}

fn plan_with_body(body: Value) -> Plan {
    plan(&document(
        "3.0.0",
        json!({"/pets/{id}": {"post": {
            "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            "requestBody": body,
        }}}),
    ))
}

#[test]
fn members_of_a_body_are_arguments_where_nothing_collides() {
    let json = |schema: Value, required: bool| json!({"required": required, "content": {"application/json": {"schema": schema}}});
    let object =
        |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let name = json!({"type": "string"});
    let check = |plan: Plan, expected: &[&str], required: Value| {
        assert_eq!(argument_names(&plan), expected);
        assert_eq!(plan.schema["required"], required);
        plan
    };

    let flat = check(
        plan_with_body(json(object(json!({"name": name, "x-age": {"type": "integer"}}), json!(["name"])), true)),
        &["id", "name", "x_age"],
        json!(["id", "name"]),
    );
    let body = flat.body.expect("a body");
    assert_eq!(body.members, [("name".into(), "name".into()), ("x_age".into(), "x-age".into())]);
    // A member has the name of a parameter.
    check(plan_with_body(json(object(json!({"id": name}), json!([])), true)), &["body", "id"], json!(["id", "body"]));
    // An optional body with a required member.
    check(plan_with_body(json(object(json!({"name": name}), json!(["name"])), false)), &["body", "id"], json!(["id"]));
    check(plan_with_body(json(object(json!({"name": name}), json!([])), false)), &["id", "name"], json!(["id"]));
    // Not a plain object.
    check(plan_with_body(json(json!({"type": "array", "items": name}), true)), &["body", "id"], json!(["id", "body"]));
    check(plan_with_body(json(json!({"oneOf": [{"type": "object"}]}), true)), &["body", "id"], json!(["id", "body"]));
    check(
        plan_with_body(json(
            json!({"type": "object", "properties": {"name": name}, "additionalProperties": true}),
            true,
        )),
        &["body", "id"],
        json!(["id", "body"]),
    );
    // `allOf` is merged if its parts describe different members.
    let all_of = json!({"allOf": [object(json!({"name": name}), json!(["name"])), {"properties": {"age": {"type": "integer"}}}]});
    check(plan_with_body(json(all_of, true)), &["age", "id", "name"], json!(["id", "name"]));
    let twice =
        json!({"allOf": [object(json!({"name": name}), json!([])), {"properties": {"name": {"minLength": 3}}}]});
    check(plan_with_body(json(twice, true)), &["body", "id"], json!(["id", "body"]));
    // Read-only members are omitted.
    let read_only =
        object(json!({"name": name, "made": {"type": "string", "readOnly": true}}), json!(["name", "made"]));
    check(plan_with_body(json(read_only, true)), &["id", "name"], json!(["id", "name"]));
}

#[test]
fn a_body_is_sent_in_the_format_that_is_understood_best() {
    let check = |types: &[&str], expected: &str| {
        let content: Value =
            types.iter().map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}}))).collect();
        assert_eq!(plan_with_body(json!({"content": content})).body.expect("a body").media_type, expected, "{types:?}");
    };
    check(&["text/plain", "multipart/form-data", "application/json"], "application/json");
    check(&["application/x-www-form-urlencoded", "text/plain"], "application/x-www-form-urlencoded");
    check(&["application/vnd.api+json"], "application/vnd.api+json");
    check(&["*/*"], "application/json");
    check(&["text/plain"], "text/plain");
}

#[test]
fn an_operation_that_cannot_be_used_is_skipped_by_name_and_costs_no_other() {
    let document = document(
        "3.0.0",
        json!({
            "/upload": {"post": {"requestBody": {"content": {"multipart/form-data": {}}}}},
            "/lost": {"get": {"parameters": [{"$ref": "#/components/parameters/none"}]}},
            "/away": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "other.yaml#/Pet"}}}}}},
            "/pets/{id}": {"get": {}},
            "/odd": {"get": {"parameters": [{"name": "x", "in": "body"}]}, "post": 7, "trace": {}},
            "/a#b": {"get": {}},
            "/fine": {"get": {"operationId": "fine"}},
        }),
    );
    let imported = import(&document, &Options::default());
    assert_eq!(tool_names(&imported), ["fine"]);
    assert_eq!(imported.skipped(), 8);
    let texts = warnings(&imported).join("\n");
    for expected in [
        "POST /upload: its body is `multipart/form-data`; only JSON, forms and text are supported; skipped",
        "GET /lost: `#/components/parameters/none` does not exist; skipped",
        "POST /away: `other.yaml#/Pet` is in another document",
        "GET /pets/{id}: `{id}` in its path has no parameter; skipped",
        "GET /odd: its parameter `x` has the unknown location `body`; skipped",
        "POST /odd: it is not an object; skipped",
        "TRACE /odd: ",
        "GET /a#b: ",
    ] {
        assert!(texts.contains(expected), "{expected} is not in\n{texts}");
    }
}

#[test]
fn what_is_no_openapi_document_is_refused_with_what_to_do() {
    let check = |text: &str, expected: &str| {
        let error = openapi::import(text, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(r#"{"swagger": "2.0", "paths": {}}"#, "swagger2openapi");
    check("swagger: 2.0", "Swagger 2.0");
    check("openapi: 4.0.0", "supported versions are 3.0 and 3.1");
    check("hello: world", "no `openapi: 3.…` at the top level");
    check("[1, 2]", "not an object");
    check(r#"{"openapi": "3.0.0","#, "not valid JSON");
    check("a: [b", "not valid YAML");
    check("openapi: 3.0.0\npaths: {/a: {get: {}}}", "set `base_url`");
}

#[test]
fn requests_go_where_the_owner_says_before_what_the_document_says() {
    let mut document = document(
        "3.1.0",
        json!({
            "/a": {"get": {}},
            "/b": {"get": {}, "servers": [{"url": "https://b.example"}]},
            "/c": {"get": {"servers": [{"url": "../c"}]}},
        }),
    );
    let servers = |document: &Value, options: &Options| {
        import(document, options).plans.into_iter().map(|plan| plan.server).collect::<Vec<_>>()
    };
    let with_document_url =
        Options { document_url: Some("https://docs.example/v2/openapi.json".into()), ..Options::default() };
    let expected = ["https://pets.example/v1", "https://b.example", "https://docs.example/c"];
    assert_eq!(servers(&document, &with_document_url), expected);
    let with_base_url = Options { base_url: Some("http://localhost:8080/api/".into()), ..Options::default() };
    assert_eq!(servers(&document, &with_base_url), ["http://localhost:8080/api"; 3]);
    // An operation without a usable server URL is skipped.
    let texts = warnings(&import(&document, &Options::default()));
    assert_eq!(texts, ["GET /c: `../c` is not an absolute URL; skipped"]);
    document["servers"] = json!([{"url": "/v1"}]);
    let invalid = Options { base_url: Some("pets.example".into()), ..Options::default() };
    let error = openapi::import_value(&document, &invalid).unwrap_err();
    assert!(matches!(error, ImportError::Setting { setting: "base_url", .. }), "{error}");
}

#[test]
fn a_file_is_read_and_a_missing_one_is_named() {
    let error = openapi::import_file("/nowhere/pets.yaml".as_ref(), &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/pets.yaml cannot be read"), "{error}");
}
