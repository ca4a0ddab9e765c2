//! What handlers take in: each part of a request, read strictly, refused with words, and described for the API's contract.

use std::convert::Infallible;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    app::App,
    door::Cut,
    openapi::Operation,
    problem::{Code, Problem},
    scope::Principal,
};

/// Something a handler takes, that knows how to describe itself.
pub(crate) trait Describe {
    /// Adds itself to the description of a route.
    fn describe(operation: &mut Operation<'_>);
}

/// All that a handler takes. The tuples are those of axum's `Handler`.
pub(crate) trait Inputs {
    /// Adds all of it to the description of a route.
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! inputs {
    ($($name:ident)*) => {
        impl<Way, $($name: Describe,)*> Inputs for (Way, $($name,)*) {
            #[allow(unused_variables)]
            fn describe(operation: &mut Operation<'_>) {
                $($name::describe(operation);)*
            }
        }
    };
}
inputs!();
inputs!(A);
inputs!(A B);
inputs!(A B C);
inputs!(A B C D);
inputs!(A B C D E);
inputs!(A B C D E F);

impl Describe for axum::extract::State<App> {
    fn describe(_: &mut Operation<'_>) {}
}

impl Describe for HeaderMap {
    fn describe(_: &mut Operation<'_>) {}
}

/// Who asks.
#[derive(Debug)]
pub(crate) struct Who(pub(crate) Principal);

impl Describe for Who {
    fn describe(_: &mut Operation<'_>) {}
}

impl FromRequestParts<App> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        // The guard puts it there before any handler is reached; without it nobody is served.
        parts
            .extensions
            .get::<Principal>()
            .cloned()
            .map(Self)
            .ok_or_else(|| Problem::new(Code::UNAUTHENTICATED, "nobody has said who is asking"))
    }
}

/// Who asks, on a route that is open to everybody.
#[derive(Debug)]
pub(crate) struct Guest(pub(crate) Option<Principal>);

impl Describe for Guest {
    fn describe(_: &mut Operation<'_>) {}
}

impl FromRequestParts<App> for Guest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<Principal>().cloned()))
    }
}

/// The named parts of the path.
#[derive(Debug)]
pub(crate) struct Params<P>(pub(crate) P);

impl<P: JsonSchema> Describe for Params<P> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<P>("path");
    }
}

impl<P: DeserializeOwned> FromRequestParts<App> for Params<P> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let unreadable = |_| Problem::new(Code::NOT_FOUND, "the path is not readable text");
        let raw = RawPathParams::from_request_parts(parts, app).await.map_err(unreadable)?;
        let values = raw.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<Map<_, _>>();
        // A part that is no legal id names nothing that exists.
        let named = serde_path_to_error::deserialize(Value::Object(values));
        named.map(Self).map_err(|wrong| Problem::new(Code::NOT_FOUND, wrong.into_inner().to_string()))
    }
}

/// What stands behind the `?`. Every member is a text there; numbers and truths are read from it.
#[derive(Debug)]
pub(crate) struct Query<Q>(pub(crate) Q);

impl<Q: JsonSchema> Describe for Query<Q> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<Q>("query");
    }
}

impl<Q: DeserializeOwned> FromRequestParts<App> for Query<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let read = axum::extract::Query::<Q>::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(query)| Self(query)).map_err(|wrong| {
            Problem::new(Code::INVALID_REQUEST, format!("the query is not valid: {}", wrong.body_text()))
        })
    }
}

/// The body, as JSON.
#[derive(Debug)]
pub(crate) struct Body<B>(pub(crate) B);

impl<B: JsonSchema> Describe for Body<B> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<B>(true);
    }
}

impl<B: DeserializeOwned> FromRequest<App> for Body<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        match read(request, app).await? {
            Some(body) => Ok(Self(body)),
            None => Err(Problem::new(Code::INVALID_JSON, "the request has no body; send a JSON object")),
        }
    }
}

/// The body, as JSON, where there is one.
#[derive(Debug)]
pub(crate) struct MaybeBody<B>(pub(crate) Option<B>);

impl<B: JsonSchema> Describe for MaybeBody<B> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<B>(false);
    }
}

impl<B: DeserializeOwned> FromRequest<App> for MaybeBody<B> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app).await.map(Self)
    }
}

/// Reads a body within the limits. `None` where there is none.
async fn read<B: DeserializeOwned>(request: Request, app: &App) -> Result<Option<B>, Problem> {
    let json = is_json(request.headers());
    let limit = app.settings().limits.body;
    let bytes: Bytes =
        axum::body::to_bytes(request.into_body(), limit).await.map_err(|error| not_whole(&error, limit))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !json {
        let hint = "send the header `content-type: application/json`";
        return Err(Problem::new(Code::UNSUPPORTED_MEDIA_TYPE, "the body is not said to be JSON").hint(hint));
    }
    too_deep(&bytes, app.settings().limits.json_depth)?;
    let reader = &mut serde_json::Deserializer::from_slice(&bytes);
    let body = serde_path_to_error::deserialize(reader).map_err(|wrong| {
        let pointer = pointer(wrong.path());
        let wrong = wrong.into_inner();
        match wrong.classify() {
            serde_json::error::Category::Data => Problem::new(Code::INVALID_REQUEST, wrong.to_string())
                .with("errors", [serde_json::json!({"pointer": pointer, "detail": wrong.to_string()})]),
            _ => Problem::new(Code::INVALID_JSON, wrong.to_string()),
        }
    })?;
    Ok(Some(body))
}

/// Why a body could not be read.
fn not_whole(error: &axum::Error, limit: usize) -> Problem {
    match Cut::in_error(error) {
        Some(Cut::TooSlow) => Problem::new(Code::TOO_SLOW, "the body took longer to arrive than this server waits"),
        _ => Problem::new(Code::TOO_LARGE, format!("the body is larger than {limit} bytes, or did not arrive whole")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Refuses JSON nested deeper than allowed before anybody walks through it.
fn too_deep(bytes: &[u8], most: usize) -> Result<(), Problem> {
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

fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter().fold(String::new(), |mut pointer, segment| {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Unknown => pointer.push_str("/?"),
        }
        pointer
    })
}
