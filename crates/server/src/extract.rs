//! What handlers take in: each part of a request, read strictly, refused with words, and described for the API's contract.

mod headers;

use axum::{
    body::Bytes,
    extract::{FromRequestParts, RawPathParams, State},
    http::{HeaderMap, header, request::Parts},
};
use futures_util::FutureExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, DeserializeOwned, value::MapDeserializer};
use serde_json::{Map, Value};

use crate::{
    app::App,
    body_error,
    operation::Operation,
    problem::{Code, Flaw, Problem},
    scope::Principal,
};

/// How alike two names are of which one may be meant by the other, from 0 to 1.
const SIMILARITY_THRESHOLD: f64 = 0.8;

pub(crate) use headers::{AcceptLanguage, IdempotencyHeader, LastEventId, Prefer, Trace};

/// Something a handler takes from the head of a request, that knows how to describe itself.
pub(crate) trait FromParts: Sized + Send + 'static {
    /// Adds itself to the description of a route. What a client does not send is not described.
    fn describe(_: &mut Operation<'_>) {}

    /// Reads it.
    ///
    /// # Errors
    /// The problem the request is answered with.
    fn from_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem>;
}

/// What a handler takes from the body of a request, as the last of its parts.
pub(crate) trait FromBody: Sized + Send + 'static {
    /// Adds itself to the description of a route.
    fn describe(operation: &mut Operation<'_>);

    /// Reads it from the whole body.
    ///
    /// # Errors
    /// The problem the request is answered with.
    fn from_body(headers: &HeaderMap, body: Bytes, app: &App) -> Result<Self, Problem>;

    /// The problem a request is answered with whose body did not arrive.
    fn not_whole(error: &axum::Error, limit: usize) -> Problem {
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
        // The route's guard puts it there before any handler is reached; without it nobody is served.
        let principal = parts.extensions.get::<Self>().cloned();
        principal.ok_or_else(|| Problem::new(Code::UNAUTHENTICATED, "nobody has said who is asking"))
    }
}

/// Who asks, on a route that is open to everybody.
#[derive(Debug)]
pub(crate) struct MaybePrincipal(pub(crate) Option<Principal>);

impl FromParts for MaybePrincipal {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self(parts.extensions.get::<Principal>().cloned()))
    }
}

/// The named parts of the path.
#[derive(Debug)]
pub(crate) struct Params<P>(pub(crate) P);

impl<P: DeserializeOwned + JsonSchema + Send + 'static> FromParts for Params<P> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<P>("path");
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let raw = raw_params(parts)?;
        // A part that is no legal id names nothing that exists.
        let named = P::deserialize(MapDeserializer::<_, de::value::Error>::new(raw.iter()));
        named.map(Self).map_err(|wrong| Problem::new(Code::NOT_FOUND, wrong.to_string()))
    }
}

/// What axum's router found in the path. It is there already; axum only tells of it by a future.
fn raw_params(parts: &mut Parts) -> Result<RawPathParams, Problem> {
    let found = RawPathParams::from_request_parts(parts, &()).now_or_never();
    found.and_then(Result::ok).ok_or_else(|| Problem::new(Code::NOT_FOUND, "the path is not readable text"))
}

/// What stands behind the `?`. Every member is a text there; numbers and truths are read from it.
#[derive(Debug)]
pub(crate) struct Query<Q>(pub(crate) Q);

impl<Q: DeserializeOwned + JsonSchema + Send + 'static> FromParts for Query<Q> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<Q>("query");
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let read = axum::extract::Query::<Q>::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(query)| Self(query)).map_err(|wrong| {
            Problem::new(Code::INVALID_REQUEST, format!("the query is not valid: {}", wrong.body_text()))
        })
    }
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

/// The body, as JSON, where there is one.
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

/// Reads a body as JSON. `None` where there is none.
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
        .map_err(|wrong| body_problem(&wrong, body, B::json_schema, mismatch_pointer::<B>))
}

/// How a type of bodies is described.
type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Whether a body can be read as JSON of a type that is described so.
fn check_readable(headers: &HeaderMap, body: &[u8], app: &App, described: SchemaFn) -> Result<(), Problem> {
    if !is_json(headers) {
        let hint = "send the header `content-type: application/json`";
        return Err(Problem::new(Code::UNSUPPORTED_MEDIA_TYPE, "the body is not said to be JSON").hint(hint));
    }
    if is_compressed(headers) {
        let hint = "send it as it is, without the header `content-encoding`";
        return Err(Problem::new(Code::UNSUPPORTED_MEDIA_TYPE, "the body is said to be compressed").hint(hint));
    }
    check_depth(body, app.settings().limits.json_depth)?;
    require_object(body, described)
}

/// Why a body is none of its type.
fn body_problem(wrong: &serde_json::Error, bytes: &[u8], described: SchemaFn, misfit: fn(&[u8]) -> String) -> Problem {
    let detail = wrong.to_string();
    if !wrong.is_data() {
        return Problem::new(Code::INVALID_JSON, detail);
    }
    let misfit = || Flaw { pointer: misfit(bytes), detail: detail.clone() };
    let flaw = unknown_member(bytes, described).unwrap_or_else(misfit);
    Problem::new(Code::INVALID_REQUEST, detail).with("errors", [flaw])
}

/// Where in a body it is that something does not fit. It is read once more for that: whoever sends a sound one does not pay.
fn mismatch_pointer<B: DeserializeOwned>(bytes: &[u8]) -> String {
    let read = serde_path_to_error::deserialize::<_, B>(&mut serde_json::Deserializer::from_slice(bytes));
    read.err().map(|wrong| json_pointer(wrong.path())).unwrap_or_default()
}

/// Refuses anything but an object where one is described. A list would be read as the members in their order.
fn require_object(bytes: &[u8], described: SchemaFn) -> Result<(), Problem> {
    let object = bytes.trim_ascii_start().starts_with(b"{");
    if object || described(&mut SchemaGenerator::default()).get("type") != Some(&Value::from("object")) {
        return Ok(());
    }
    let other = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
    other.map_err(|wrong| Problem::new(Code::INVALID_JSON, wrong.to_string()))?;
    let detail = "the body is no JSON object";
    Err(Problem::new(Code::INVALID_REQUEST, detail)
        .with("errors", [Flaw { pointer: "".into(), detail: detail.into() }]))
}

/// The first member of a body that is none of its type's, with the closest one that is.
fn unknown_member(bytes: &[u8], described: SchemaFn) -> Option<Flaw> {
    let body: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let schema = described(&mut SchemaGenerator::default());
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let known = schema.get("properties").and_then(Value::as_object).filter(|_| closed)?;
    let unknown = body.keys().find(|name| !known.contains_key(*name))?;
    let closest =
        known.keys().max_by(|a, b| strsim::jaro_winkler(unknown, a).total_cmp(&strsim::jaro_winkler(unknown, b)));
    let close = closest.filter(|name| strsim::jaro_winkler(unknown, name) > SIMILARITY_THRESHOLD);
    let detail = match close {
        Some(name) => format!("there is no member of this name; did you mean `{name}`?"),
        None => format!("there is no member of this name; there are `{}`", join_names(known.keys())),
    };
    Some(Flaw { pointer: format!("/{}", escape_pointer(unknown)), detail })
}

fn join_names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join("`, `")
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return true;
    }
    let essence = essence.to_ascii_lowercase();
    essence.starts_with("application/") && essence.ends_with("+json")
}

/// Whether a body would have to be unpacked first. Nobody needs that for so little, and what it becomes has no limit.
fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).iter().any(|said| !said.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Refuses JSON nested deeper than allowed before anybody walks through it.
fn check_depth(bytes: &[u8], most: usize) -> Result<(), Problem> {
    let (mut depth, mut text, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'[' | b'{' if !text => {
                depth += 1;
                if depth > most {
                    return Err(Problem::new(
                        Code::INVALID_REQUEST,
                        format!("the JSON is nested deeper than {most} levels"),
                    ));
                }
            }
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
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

/// A name inside a JSON pointer.
fn escape_pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
