//! Extractors of handlers: read each part of a request strictly, refuse it with a problem, and describe it for OpenAPI.

mod headers;

use std::collections::HashMap;

use axum::{
    body::Bytes,
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, Uri, header, request::Parts},
};
use futures_util::FutureExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, DeserializeOwned, IgnoredAny, value::MapDeserializer};
use serde_json::{Map, Value};
use toolhub_core::{
    json::{self, JsonLimits},
    suggest,
};

use crate::{
    app::App,
    body_error,
    operation::Operation,
    problem::{Code, FieldError, Problem},
    scope::Principal,
};

pub(crate) use headers::{AcceptLanguage, IdempotencyHeader, LastEventId, Prefer, Trace};

/// Something a handler takes from the request head, with its own OpenAPI description.
pub(crate) trait FromParts: Sized + Send + 'static {
    /// Adds itself to the description of a route. Parts that are not client input stay undescribed.
    fn describe(_: &mut Operation<'_>) {}

    /// Reads it.
    ///
    /// # Errors
    /// The problem the request is answered with.
    fn from_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem>;
}

/// What a handler takes from the request body, as the last of its arguments.
pub(crate) trait FromBody: Sized + Send + 'static {
    /// Adds itself to the description of a route.
    fn describe(operation: &mut Operation<'_>);

    /// Reads it from the whole body.
    ///
    /// # Errors
    /// The problem the request is answered with.
    fn from_body(headers: &HeaderMap, body: Bytes, app: &App) -> Result<Self, Problem>;

    /// The problem for a request whose body did not arrive.
    fn incomplete_body_problem(error: &axum::Error, limit: usize) -> Problem {
        body_error::problem(error, limit)
    }
}

impl FromParts for State<App> {
    fn from_parts(_: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self(app.clone()))
    }
}

impl FromParts for HeaderMap {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(parts.headers.clone())
    }
}

impl FromParts for Principal {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        // The route's guard inserts it before any handler runs; without it the request is refused.
        let principal = parts.extensions.get::<Self>().cloned();
        principal.ok_or_else(|| Problem::new(Code::UNAUTHENTICATED, "the request is not authenticated"))
    }
}

/// The principal, on a route that is also open to anonymous requests.
#[derive(Debug)]
pub(crate) struct MaybePrincipal(pub(crate) Option<Principal>);

impl FromParts for MaybePrincipal {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(parts.extensions.get::<Principal>().cloned()))
    }
}

/// The path parameters.
#[derive(Debug)]
pub(crate) struct Params<P>(pub(crate) P);

impl<P: DeserializeOwned + JsonSchema + Send + 'static> FromParts for Params<P> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<P>("path");
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let raw = raw_params(parts)?;
        // A segment that is not a valid id names nothing that exists.
        let parsed = P::deserialize(MapDeserializer::<_, de::value::Error>::new(raw.iter()));
        parsed.map(Self).map_err(|error| Problem::new(Code::NOT_FOUND, error.to_string()))
    }
}

/// The path parameters found by axum's router. They are ready already; axum only exposes them through a future.
fn raw_params(parts: &mut Parts) -> Result<RawPathParams, Problem> {
    let found = RawPathParams::from_request_parts(parts, &()).now_or_never();
    found.and_then(Result::ok).ok_or_else(|| Problem::new(Code::NOT_FOUND, "the path is not readable text"))
}

/// The query parameters. All values are text; numbers and booleans are parsed from it.
#[derive(Debug)]
pub(crate) struct Query<Q>(pub(crate) Q);

impl<Q: DeserializeOwned + JsonSchema + Send + 'static> FromParts for Query<Q> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<Q>("query");
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let read = axum::extract::Query::<Q>::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(query)| Self(query)).map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let detail = missing_parameter(&parts.uri, Q::json_schema).unwrap_or(cause);
            Problem::new(Code::INVALID_REQUEST, format!("the query is not valid: {detail}"))
        })
    }
}

/// The first required query parameter that a request lacks, with the values it may have.
fn missing_parameter(uri: &Uri, schema_fn: SchemaFn) -> Option<String> {
    type Given = HashMap<String, IgnoredAny>;
    let axum::extract::Query(given) = axum::extract::Query::<Given>::try_from_uri(uri).ok()?;
    let mut generator = SchemaGenerator::default();
    let schema = schema_fn(&mut generator);
    let required = schema.get("required")?.as_array()?.iter().filter_map(Value::as_str);
    let name = required.into_iter().find(|name| !given.contains_key(*name))?;
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    let referenced = property
        .and_then(|property| property.get("$ref")?.as_str()?.rsplit('/').next())
        .and_then(|definition| generator.definitions().get(definition));
    let values = referenced.or(property).and_then(|property| property.get("enum")?.as_array());
    Some(match values {
        Some(values) => {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            format!("`{name}` is missing; use one of {}", values.join(", "))
        }
        None => format!("`{name}` is missing"),
    })
}

/// The body, as JSON.
#[derive(Debug)]
pub(crate) struct Body<B>(pub(crate) B);

impl<B: DeserializeOwned + JsonSchema + Send + 'static> FromBody for Body<B> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<B>(true);
    }

    fn from_body(headers: &HeaderMap, body: Bytes, app: &App) -> Result<Self, Problem> {
        match parse_json_body(headers, &body, app)? {
            Some(body) => Ok(Self(body)),
            None => Err(Problem::new(Code::INVALID_JSON, "the request has no body; send a JSON object")),
        }
    }
}

/// The body, as JSON, if there is one.
#[derive(Debug)]
pub(crate) struct MaybeBody<B>(pub(crate) Option<B>);

impl<B: DeserializeOwned + JsonSchema + Send + 'static> FromBody for MaybeBody<B> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<B>(false);
    }

    fn from_body(headers: &HeaderMap, body: Bytes, app: &App) -> Result<Self, Problem> {
        parse_json_body(headers, &body, app).map(Self)
    }
}

/// Parses a body as JSON. `None` if it is empty.
fn parse_json_body<B: DeserializeOwned + JsonSchema>(
    headers: &HeaderMap,
    body: &[u8],
    app: &App,
) -> Result<Option<B>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    check_readable(headers, body, app, B::json_schema)?;
    serde_json::from_slice(body)
        .map(Some)
        .map_err(|error| body_problem(&error, body, B::json_schema, mismatch_pointer::<B>))
}

/// Generates the schema of a body type.
type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Checks media type, encoding, limits and top-level type of a body before it is parsed.
fn check_readable(headers: &HeaderMap, body: &[u8], app: &App, schema_fn: SchemaFn) -> Result<(), Problem> {
    require_json(headers)?;
    if is_compressed(headers) {
        let hint = "send it uncompressed, without the header `content-encoding`";
        return Err(Problem::new(Code::UNSUPPORTED_MEDIA_TYPE, "the body is compressed").hint(hint));
    }
    check_limits(body, app.settings().limits.json())?;
    require_object(body, schema_fn)
}

/// The problem for a body that does not match its type.
fn body_problem(
    error: &serde_json::Error,
    bytes: &[u8],
    schema_fn: SchemaFn,
    pointer_fn: fn(&[u8]) -> String,
) -> Problem {
    let detail = error.to_string();
    if !error.is_data() {
        return Problem::new(Code::INVALID_JSON, detail);
    }
    let (mut field_errors, has_arguments) = unknown_members(bytes, schema_fn);
    if field_errors.is_empty() {
        field_errors.push(FieldError::new(pointer_fn(bytes), detail.clone()));
    } else if has_arguments {
        let problem = Problem::new(Code::INVALID_REQUEST, detail).with("errors", field_errors);
        return problem.hint("put the tool's arguments in `arguments`: {\"arguments\": {…}}");
    }
    Problem::new(Code::INVALID_REQUEST, detail).with("errors", field_errors)
}

/// The JSON pointer of the first mismatch in a body. Parses the body a second time, so that only invalid bodies pay for
/// it.
fn mismatch_pointer<B: DeserializeOwned>(bytes: &[u8]) -> String {
    let read = serde_path_to_error::deserialize::<_, B>(&mut serde_json::Deserializer::from_slice(bytes));
    read.err().map(|error| json_pointer(error.path())).unwrap_or_default()
}

/// Refuses anything but an object if the schema asks for one. Serde would read an array as the members in order.
fn require_object(bytes: &[u8], schema_fn: SchemaFn) -> Result<(), Problem> {
    let is_object = bytes.trim_ascii_start().starts_with(b"{");
    if is_object || schema_fn(&mut SchemaGenerator::default()).get("type") != Some(&Value::from("object")) {
        return Ok(());
    }
    let parsed = serde_json::from_slice::<IgnoredAny>(bytes);
    parsed.map_err(|error| Problem::new(Code::INVALID_JSON, error.to_string()))?;
    let detail = "the body is not a JSON object";
    Err(Problem::new(Code::INVALID_REQUEST, detail).with("errors", [FieldError::new("", detail)]))
}

/// The members of a body that its type does not have, each with the closest name that it has; and whether they may be meant as the
/// arguments of a tool, because its type has `arguments` and the body does not.
fn unknown_members(bytes: &[u8], schema_fn: SchemaFn) -> (Vec<FieldError>, bool) {
    let body: Map<String, Value> = serde_json::from_slice(bytes).unwrap_or_default();
    let schema = schema_fn(&mut SchemaGenerator::default());
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let Some(known) = schema.get("properties").and_then(Value::as_object).filter(|_| closed) else {
        return (Vec::new(), false);
    };
    let unknown = body.keys().filter(|name| !known.contains_key(*name));
    let errors = unknown.map(|unknown| {
        let detail = match suggest::closest(unknown, known.keys().map(String::as_str), 1).first() {
            Some(name) => format!("unknown member; did you mean `{name}`?"),
            None => format!("unknown member; known are `{}`", join_names(known.keys())),
        };
        FieldError::new(format!("/{}", escape_pointer(unknown)), detail)
    });
    (errors.collect(), known.contains_key("arguments") && !body.contains_key("arguments"))
}

fn join_names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join("`, `")
}

/// Refuses a body of another type than JSON.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let hint = "send the header `content-type: application/json`";
    let problem = || Problem::new(Code::UNSUPPORTED_MEDIA_TYPE, "the content type of the body is not JSON").hint(hint);
    if is_json(headers) { Ok(()) } else { Err(problem()) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return true;
    }
    let essence = essence.to_ascii_lowercase();
    essence.starts_with("application/") && essence.ends_with("+json")
}

/// Whether the body is compressed. Request bodies are small, and decompressing one would need a limit of its own.
fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Refuses JSON that is nested too deeply or has too many values, before it is parsed.
pub(crate) fn check_limits(bytes: &[u8], limits: JsonLimits) -> Result<(), Problem> {
    json::count_values(bytes, limits)
        .map(|_| ())
        .map_err(|error| Problem::new(Code::INVALID_REQUEST, error.to_string()))
}

fn json_pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |mut pointer, segment| {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                pointer.push('/');
                pointer.push_str(&escape_pointer(key));
            }
            Segment::Unknown => pointer.push_str("/?"),
        }
        pointer
    })
}

/// Escapes a name for a JSON pointer.
fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
