//! The description of the API, OpenAPI 3.1, made from the routes and the types they take and give.
//!
//! In: the list of routes. Out: one JSON document. Nothing in it is written by hand but the introduction.

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

/// What every route may answer, whatever it does.
const COMMON_CODES: &[Code] =
    &[Code::MISDIRECTED, Code::FOREIGN_ORIGIN, Code::TOO_SLOW, Code::TOO_LARGE, Code::INTERNAL, Code::SHUTTING_DOWN];
/// What every route may answer that asks who is there.
const AUTH_CODES: &[Code] = &[Code::UNAUTHENTICATED, Code::FORBIDDEN];
/// What a route may answer that reads a body.
const BODY_CODES: &[Code] = &[Code::INVALID_JSON, Code::INVALID_REQUEST, Code::UNSUPPORTED_MEDIA_TYPE];
/// What a route may answer whose repetitions are answered for it.
const IDEMPOTENCY_ERRORS: &[ErrorKind] =
    &[ErrorKind::IdempotencyKeyReused, ErrorKind::IdempotencyInProgress, ErrorKind::StoreUnavailable];

/// The whole document.
pub(crate) fn document(routes: &[Route], version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // What is taken and what is given are not described alike: a member that may be left out in the one is always there in
    // the other, though perhaps null.
    let mut taken = settings.clone().for_deserialize().into_generator();
    let mut given = settings.for_serialize().into_generator();
    let problem = given.subschema_for::<ProblemBody>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes {
        let operation = describe_operation(route, (&mut taken, &mut given), problem.as_value());
        paths.entry(route.path).or_default().insert(route.method.as_str().to_ascii_lowercase(), operation);
    }
    let mut schemas = given.take_definitions(true);
    let mut taken = taken.take_definitions(true);
    let differs = |name: &String, schema: &Value| schemas.get(name).is_some_and(|other| other != schema);
    let doubled: Vec<String> =
        taken.iter().filter(|(name, schema)| differs(name, schema)).map(|(name, _)| name.clone()).collect();
    for operation in paths.values_mut().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        for part in ["parameters", "requestBody"] {
            operation.get_mut(part).into_iter().for_each(|part| rename_refs(part, &doubled));
        }
    }
    for (name, mut schema) in std::mem::take(&mut taken) {
        rename_refs(&mut schema, &doubled);
        let name = if doubled.contains(&name) { format!("{name}{INPUT_SUFFIX}") } else { name };
        schemas.insert(name, schema);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Toolhub",
            "version": version,
            "description": "The one place through which an agent's tool calls pass. Answers that are no success are problems (RFC 9457); their `code` is stable.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key made by `toolhub keys create`. Not needed in local mode."}},
        },
    })
}

/// What the name of a type ends with that is not taken as it is given.
const INPUT_SUFFIX: &str = "Input";
/// Where the schemas of types are.
const SCHEMA_REF_PREFIX: &str = "#/components/schemas/";

/// Makes references to these types lead to what is taken.
fn rename_refs(schema: &mut Value, doubled: &[String]) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && doubled.iter().any(|name| reference.strip_prefix(SCHEMA_REF_PREFIX) == Some(name))
            {
                reference.push_str(INPUT_SUFFIX);
            }
            members.values_mut().for_each(|member| rename_refs(member, doubled));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_refs(item, doubled)),
        _ => {}
    }
}

fn describe_operation(
    route: &Route,
    (taken, given): (&mut SchemaGenerator, &mut SchemaGenerator),
    problem: &Value,
) -> Value {
    let mut operation = Operation::new(taken);
    (route.describe_inputs)(&mut operation);
    if route.replays_responses {
        IdempotencyHeader::describe(&mut operation);
    }
    let (parameters, body) = operation.into_parts();
    let mut responses = Map::new();
    for says in &route.responses {
        let mut answer = json!({"description": says.description});
        if let (Some(answer), true) = (answer.as_object_mut(), !says.media.is_empty()) {
            let schema = says.schema.map_or_else(|| json!({}), |schema| schema(given).to_value());
            let media = if says.schema.is_some() { json!({"schema": schema}) } else { json!({}) };
            answer.insert("content".into(), json!({ says.media: media }));
        }
        // The same status in another form.
        let said =
            responses.get_mut(&says.status.to_string()).and_then(|said| said.get_mut("content")?.as_object_mut());
        if let (Some(said), Some(Value::Object(more))) = (said, answer.get("content").cloned()) {
            said.extend(more);
            continue;
        }
        responses.insert(says.status.to_string(), answer);
    }
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    let guarded = if matches!(route.access, Access::Needs(_)) { AUTH_CODES } else { &[] };
    let with_body = if body.is_some() { BODY_CODES } else { &[] };
    let with_query = if parameters.iter().any(|one| one["in"] == "query") { &[Code::INVALID_REQUEST][..] } else { &[] };
    let with_path = if parameters.iter().any(|one| one["in"] == "path") { &[Code::NOT_FOUND][..] } else { &[] };
    for code in [COMMON_CODES, guarded, with_body, with_query, with_path, &route.problems].into_iter().flatten() {
        codes.entry(code.status).or_default().push(code.name);
    }
    if route.replays_responses {
        codes.entry(Code::INVALID_KEY.status).or_default().push(Code::INVALID_KEY.name);
    }
    let once = if route.replays_responses { IDEMPOTENCY_ERRORS } else { &[] };
    for kind in route.refusals.iter().chain(once) {
        codes.entry(kind.row().http).or_default().push(kind.name());
    }
    for (status, mut names) in codes {
        names.sort_unstable();
        names.dedup();
        let description = format!("`{}`", names.join("`, `"));
        responses.entry(status.to_string()).or_insert_with(
            || json!({"description": description, "content": {"application/problem+json": {"schema": problem}}}),
        );
    }
    let takes = |name: &str| parameters.iter().any(|one| one["name"] == name);
    for (status, answer) in &mut responses {
        let headers = headers::response_headers(route, status, takes);
        if let (Some(answer), false) = (answer.as_object_mut(), headers.is_empty()) {
            answer.insert("headers".into(), headers.into());
        }
    }
    let mut described = json!({
        "operationId": operation_id(route),
        "tags": [route.tag],
        "summary": route.summary,
        "responses": responses,
    });
    if let Some(described) = described.as_object_mut() {
        if !parameters.is_empty() {
            described.insert("parameters".into(), parameters.into());
        }
        described.extend(body.map(|body| ("requestBody".into(), body)));
        if let Access::Needs(scope) = route.access {
            described.insert("security".into(), json!([{"key": []}]));
            described.insert("x-toolhub-scope".into(), scope.as_str().into());
        }
    }
    described
}

/// `get_tools_name_calls`: the method and the words of the path.
fn operation_id(route: &Route) -> String {
    let words = route.path.split('/').map(|part| part.trim_matches(['{', '}'])).filter(|part| !part.is_empty());
    let words = words.filter(|part| !matches!(*part, "api" | "v1"));
    let method = route.method.as_str().to_ascii_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_").replace(['-', '.'], "_")
}
