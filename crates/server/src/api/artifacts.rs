//! Artifacts: content that was too long for a model, fetched whole.
//!
//! In: an id that cannot be guessed. Out: the bytes. They are untrusted tool output: the headers make a browser
//! download them and forbid it to run anything in them.

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
            .response(200, "*/*", "The whole content, with the media type given by the tool")
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
    principal: Principal,
    Params(ArtifactPath { id }): Params<ArtifactPath>,
) -> ApiResult<Response> {
    let unknown = || Problem::new(Code::ARTIFACT_NOT_FOUND, "there is no such artifact, or it has expired");
    let id = ArtifactId::new(id).map_err(|_| unknown())?;
    let artifact = app.hub().artifact(&principal.tenant, &id).await?.ok_or_else(unknown)?;
    let (media, extension) = media_type(&artifact.mime_type);
    let mut response = artifact.bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    // An id consists of letters, digits and a few signs, so the file name needs no escaping.
    if let Ok(name) = HeaderValue::try_from(format!("attachment; filename=\"{id}.{extension}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    Ok(response)
}

/// The media type as a header, and the matching file extension. An invalid media type becomes
/// `application/octet-stream`.
fn media_type(value: &str) -> (HeaderValue, &'static str) {
    let bytes = (HeaderValue::from_static("application/octet-stream"), "bin");
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let is_legal = essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
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
    let is_text = essence.starts_with("text/") && !value.contains("charset");
    let value = if is_text { format!("{essence}; charset=utf-8") } else { value.to_owned() };
    match HeaderValue::try_from(value) {
        Ok(media) if is_legal => (media, extension),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::media_type;

    #[test]
    fn only_a_media_type_becomes_one() {
        for (value, expected) in [
            ("text/plain", "text/plain; charset=utf-8"),
            ("text/plain; charset=ascii", "text/plain; charset=ascii"),
            ("image/svg+xml", "image/svg+xml"),
            ("", "application/octet-stream"),
            ("text", "application/octet-stream"),
            ("a/b c", "application/octet-stream"),
            ("text/html\r\nx: y", "application/octet-stream"),
            ("application/json\0", "application/octet-stream"),
        ] {
            assert_eq!(media_type(value).0, expected, "{value:?}");
        }
    }
}
