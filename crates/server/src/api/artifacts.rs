//! What was too long for a model, to be fetched whole.
//!
//! In: an id that nobody can guess. Out: the bytes. They are a tool's output and nobody's word: a browser saves them and is
//! told to run nothing in them.

use axum::{
    extract::State,
    http::{HeaderValue, Method, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, ids::ArtifactId};

use crate::{
    app::App,
    extract::Params,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/artifacts/{id}", Access::Needs(Scope::ToolsRead), "calls", fetch)
            .summary("Content that was too long for a model")
            .response(200, "*/*", "All of it, with the media type the tool gave it")
            .problems(&[Code::ARTIFACT_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// An artifact in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ArtifactPath {
    /// The artifact.
    id: String,
}

async fn fetch(
    State(app): State<App>,
    who: Principal,
    Params(ArtifactPath { id }): Params<ArtifactPath>,
) -> ApiResult<Response> {
    let unknown = || Problem::new(Code::ARTIFACT_NOT_FOUND, "there is no such artifact, or it has expired");
    let id = ArtifactId::new(id).map_err(|_| unknown())?;
    let artifact = app.hub().artifact(&who.tenant, &id).await?.ok_or_else(unknown)?;
    let (media, extension) = media_type(&artifact.mime_type);
    let mut response = artifact.bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    // Letters, digits and a few signs: an id needs no quoting.
    if let Ok(name) = HeaderValue::try_from(format!("attachment; filename=\"{id}.{extension}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    Ok(response)
}

/// The media type as a header, and how a file of it ends. What is no media type is bytes.
fn media_type(said: &str) -> (HeaderValue, &'static str) {
    let bytes = (HeaderValue::from_static("application/octet-stream"), "bin");
    let essence = said.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let legal = essence.split_once('/').is_some_and(|(kind, sort)| token(kind) && token(sort));
    let extension = match essence {
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/csv" => "csv",
        "application/json" => "json",
        "application/pdf" => "pdf",
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "audio/wav" => "wav",
        _ => "bin",
    };
    let plain = essence.starts_with("text/") && !said.contains("charset");
    let said = if plain { format!("{essence}; charset=utf-8") } else { said.to_owned() };
    match HeaderValue::try_from(said) {
        Ok(media) if legal => (media, extension),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::media_type;

    #[test]
    fn only_a_media_type_becomes_one() {
        for (said, told) in [
            ("text/plain", "text/plain; charset=utf-8"),
            ("text/plain; charset=ascii", "text/plain; charset=ascii"),
            ("image/svg+xml", "image/svg+xml"),
            ("", "application/octet-stream"),
            ("text", "application/octet-stream"),
            ("a/b c", "application/octet-stream"),
            ("text/html\r\nx: y", "application/octet-stream"),
            ("application/json\0", "application/octet-stream"),
        ] {
            assert_eq!(media_type(said).0, told, "{said:?}");
        }
    }
}
