//! The OpenAPI 3.1 document, generated from the routes and the types of their inputs and responses.
//!
//! In: the list of routes. Out: one JSON document. Only the introduction is written by hand.

mod headers;

use std::collections::BTreeMap;

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use toolhub_core::ErrorKind;

use crate::{
    extract::{FromParts, IdempotencyHeader},
    operation::Operation,
    problem::{Code, ProblemBody},
    route::Route,
    scope::Access,
};

/// Problems that every route may answer with.
const COMMON_CODES: &[Code] =
    &[Code::MISDIRECTED, Code::FOREIGN_ORIGIN, Code::TOO_SLOW, Code::TOO_LARGE, Code::INTERNAL, Code::SHUTTING_DOWN];
/// Refusals of every route while the server is full.
const COMMON_ERRORS: &[ErrorKind] = &[ErrorKind::Overloaded];
/// Problems of every route that requires a key.
const AUTH_CODES: &[Code] = &[Code::UNAUTHENTICATED, Code::FORBIDDEN];
/// Problems of routes with a body.
const BODY_CODES: &[Code] = &[Code::INVALID_JSON, Code::INVALID_REQUEST, Code::UNSUPPORTED_MEDIA_TYPE];
/// Problems of routes behind the idempotency middleware.
const IDEMPOTENCY_ERRORS: &[ErrorKind] =
    &[ErrorKind::IdempotencyKeyReused, ErrorKind::IdempotencyInProgress, ErrorKind::StoreUnavailable];

/// The whole document.
pub(crate) fn document(routes: &[Route], version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // Inputs and responses need different schemas: a member that is optional in an input is always present in a
    // response, though perhaps null.
    let mut input = settings.clone().for_deserialize().into_generator();
    let mut output = settings.for_serialize().into_generator();
    let problem = output.subschema_for::<ProblemBody>();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = describe_operation(route, (&mut input, &mut output), problem.as_value());
        paths
            .entry(openapi_path(route.path))
            .or_default()
            .insert(route.method.as_str().to_ascii_lowercase(), operation);
    }
    let mut schemas = output.take_definitions(true);
    let mut input = input.take_definitions(true);
    let differs = |name: &String, schema: &Value| schemas.get(name).is_some_and(|other| other != schema);
    let ambiguous: Vec<String> =
        input.iter().filter(|(name, schema)| differs(name, schema)).map(|(name, _)| name.clone()).collect();
    for operation in paths.values_mut().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        for part in ["parameters", "requestBody"] {
            operation.get_mut(part).into_iter().for_each(|part| rename_refs(part, &ambiguous));
        }
    }
    for (name, mut schema) in std::mem::take(&mut input) {
        rename_refs(&mut schema, &ambiguous);
        let name = if ambiguous.contains(&name) { format!("{name}{INPUT_SUFFIX}") } else { name };
        schemas.insert(name, schema);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolhub",
            "version": version,
            "description": "The HTTP API of Toolhub, the hub through which an agent's tool calls pass. Errors are problems (RFC 9457); their `code` is stable.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key created with `toolhub keys create`. Not needed in local mode."},
                "login": {"type": "apiKey", "in": "cookie", "name": "toolhub_session", "description": "The cookie of a login to the dashboard; only for requests of its own page."},
            },
        },
    })
}

/// Suffix for the name of a type whose input schema differs from its response schema.
const INPUT_SUFFIX: &str = "Input";
/// Prefix of references to schemas.
const SCHEMA_REF_PREFIX: &str = "#/components/schemas/";

/// Points references to these types at their input schemas.
fn rename_refs(schema: &mut Value, ambiguous: &[String]) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && ambiguous.iter().any(|name| reference.strip_prefix(SCHEMA_REF_PREFIX) == Some(name))
            {
                reference.push_str(INPUT_SUFFIX);
            }
            members.values_mut().for_each(|member| rename_refs(member, ambiguous));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_refs(item, ambiguous)),
        _ => {}
    }
}

fn describe_operation(
    route: &Route,
    (input, output): (&mut SchemaGenerator, &mut SchemaGenerator),
    problem: &Value,
) -> Value {
    let mut inputs = Operation::new(input);
    (route.describe_inputs)(&mut inputs);
    if route.replays_responses {
        IdempotencyHeader::describe(&mut inputs);
    }
    let (parameters, body) = inputs.into_parts();
    let mut responses = Map::new();
    for spec in &route.responses {
        let mut response = json!({"description": spec.description});
        if let (Some(response), true) = (response.as_object_mut(), !spec.media.is_empty()) {
            let schema = spec.schema.map_or_else(|| json!({}), |schema| schema(output).to_value());
            let media = if spec.schema.is_some() { json!({"schema": schema}) } else { json!({}) };
            response.insert("content".into(), json!({ spec.media: media }));
        }
        // Another media type of the same status.
        let content =
            responses.get_mut(&spec.status.to_string()).and_then(|known| known.get_mut("content")?.as_object_mut());
        if let (Some(content), Some(Value::Object(more))) = (content, response.get("content").cloned()) {
            content.extend(more);
            continue;
        }
        responses.insert(spec.status.to_string(), response);
    }
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    let auth_codes = if route.access != Access::Open { AUTH_CODES } else { &[] };
    let body_codes = if body.is_some() { BODY_CODES } else { &[] };
    let query_codes =
        if parameters.iter().any(|parameter| parameter["in"] == "query") { &[Code::INVALID_REQUEST][..] } else { &[] };
    let path_codes =
        if parameters.iter().any(|parameter| parameter["in"] == "path") { &[Code::NOT_FOUND][..] } else { &[] };
    for code in [COMMON_CODES, auth_codes, body_codes, query_codes, path_codes, &route.problems].into_iter().flatten() {
        codes.entry(code.status).or_default().push(code.name);
    }
    if route.replays_responses {
        codes.entry(Code::INVALID_KEY.status).or_default().push(Code::INVALID_KEY.name);
    }
    let idempotency_errors = if route.replays_responses { IDEMPOTENCY_ERRORS } else { &[] };
    for kind in route.refusals.iter().chain(COMMON_ERRORS).chain(idempotency_errors) {
        codes.entry(kind.row().http).or_default().push(kind.name());
    }
    for (status, mut names) in codes {
        names.sort_unstable();
        names.dedup();
        let description = format!("`{}`", names.join("`, `"));
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        response["description"] = match response["description"].as_str() {
            Some(other) => format!("{other}; or {description}").into(),
            None => description.into(),
        };
        response["content"]["application/problem+json"] = json!({"schema": problem});
    }
    if route.key_page.is_some()
        && let Some(content) = responses.get_mut("401").and_then(|response| response["content"].as_object_mut())
    {
        content.insert("text/html".into(), json!({}));
    }
    let has_parameter = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
    for (status, response) in &mut responses {
        let headers = headers::response_headers(route, status, has_parameter);
        if let (Some(response), false) = (response.as_object_mut(), headers.is_empty()) {
            response.insert("headers".into(), headers.into());
        }
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "tags": [route.tag],
        "summary": route.summary,
        "responses": responses,
    });
    if let Some(operation) = operation.as_object_mut() {
        if !parameters.is_empty() {
            operation.insert("parameters".into(), parameters.into());
        }
        operation.extend(body.map(|body| ("requestBody".into(), body)));
        if route.access != Access::Open {
            operation.insert("security".into(), json!([{"key": []}, {"login": []}]));
        }
        if let Access::Needs(scope) = route.access {
            operation.insert("x-toolhub-scope".into(), scope.as_str().into());
        }
    }
    operation
}

/// The path in the document, which has no notation for a parameter that contains slashes.
fn openapi_path(path: &str) -> String {
    path.replace("{*", "{")
}

/// `get_tools_name_calls`: the method and the segments of the path.
fn operation_id(route: &Route) -> String {
    let segments = route.path.split('/').map(|part| part.trim_matches(['{', '*', '}'])).filter(|part| !part.is_empty());
    let segments = segments.filter(|part| !matches!(*part, "api" | "v1"));
    // `/ui/` is another operation than `/ui`.
    let index = (route.path.len() > 1 && route.path.ends_with('/')).then_some("index");
    let method = route.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(segments).chain(index).collect::<Vec<_>>().join("_").replace(['-', '.'], "_")
}
