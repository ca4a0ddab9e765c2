//! A request to the API, and its response.
//!
//! Plain data, the same for both transports. Every path segment is percent-encoded here, so that no name can change the route.

use axum::http::Method;
use serde_json::Value;

use crate::failure::Failure;

/// What to do where the operator of a server has no key with the scope `admin`.
const FIRST_ADMIN_KEY: &str = "if there is no admin key yet: stop the server, run `toolhub keys create NAME --scope admin`, and add the lines it prints";
/// What to do about a response that is not one of the API.
pub(super) const OTHER_SERVER: &str = "this is not a Toolhub server; check the URL of --server and TOOLHUB_URL";

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path and query, encoded.
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
}

impl Request {
    /// A GET under `/api/v1`.
    pub(crate) fn get<'a>(path: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A POST under `/api/v1`.
    pub(crate) fn post<'a>(path: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::POST, path)
    }

    /// The liveness check.
    pub(crate) fn livez() -> Self {
        Self::at_root(Method::GET, ["livez"])
    }

    /// A request for path segments under `/api/v1`.
    pub(crate) fn new<'a>(method: Method, path: impl IntoIterator<Item = &'a str>) -> Self {
        let target =
            path.into_iter().fold(String::from("/api/v1"), |path, segment| path + "/" + &percent_encode(segment));
        Self { method, target, headers: Vec::new(), body: None }
    }

    /// A request for path segments at the root.
    pub(crate) fn at_root<'a>(method: Method, path: impl IntoIterator<Item = &'a str>) -> Self {
        let target = path.into_iter().fold(String::new(), |path, segment| path + "/" + &percent_encode(segment));
        Self { method, target, headers: Vec::new(), body: None }
    }

    /// Adds a query parameter, if there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let separator = if self.target.contains('?') { '&' } else { '?' };
            self.target += &format!("{separator}{name}={}", percent_encode(&value.to_string()));
        }
        self
    }

    /// Adds a header, if there is a value.
    pub(crate) fn header(mut self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        self.headers.extend(value.map(|value| (name, value.into())));
        self
    }

    /// Sets the body.
    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

/// Encodes a path segment or a query value.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |out, byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out + &char::from(byte).to_string(),
        _ => out + &format!("%{byte:02X}"),
    })
}

/// The seconds of a `Retry-After` header; the API sends no dates.
pub(super) fn parse_retry_after(header: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(header?).ok()?.trim().parse().ok()
}

/// A response of the API.
#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The header `Retry-After`: after how many seconds to retry.
    pub(crate) retry_after: Option<u64>,
}

impl ApiResponse {
    /// Turns an error status into a failure.
    pub(crate) fn error_for_status(self) -> Result<Self, Failure> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(self.failure()) }
    }

    /// The failure that the response describes.
    pub(crate) fn failure(&self) -> Failure {
        let problem = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        let mut failure = Failure::from_problem(&problem, self.status);
        failure.retry_after = self.retry_after;
        match failure.code.as_str() {
            // The API's hint names headers; a CLI user needs flags.
            "unauthenticated" => {
                failure.help.clear();
                failure
                    .help("set TOOLHUB_TOKEN or pass --token; the server's operator creates keys with `toolhub keys create NAME`, with an admin key")
                    .help(FIRST_ADMIN_KEY)
            }
            // A key without the scope. A rule that denies a call has the same code, and no scope.
            "forbidden" if problem["scope"].is_string() => {
                let scope = problem["scope"].as_str().unwrap_or_default();
                failure
                    .help(format!("with an admin key in TOOLHUB_TOKEN: toolhub keys create NAME --scope {scope}"))
                    .help(FIRST_ADMIN_KEY)
            }
            _ if problem["code"].is_null() => failure.help(OTHER_SERVER),
            _ => failure,
        }
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not JSON: something other than a toolhub server responded.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Failure::unexpected("the response is not JSON").help(OTHER_SERVER))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Result<Vec<Value>, Failure> {
        let value = self.json()?;
        let no_items = || Failure::unexpected("the response has no list `items`").help(OTHER_SERVER);
        value["items"].as_array().cloned().ok_or_else(no_items)
    }

    /// The cursor of the next page.
    pub(crate) fn next_cursor(&self) -> Option<String> {
        self.json().ok()?["nextCursor"].as_str().map(String::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_can_change_where_a_request_goes() {
        let request = Request::get(["tools", "../keys?x=/#", "calls"]).query("q", Some("a b&c=天"));
        assert_eq!(request.target, "/api/v1/tools/..%2Fkeys%3Fx%3D%2F%23/calls?q=a%20b%26c%3D%E5%A4%A9");
        let absent: Option<&str> = None;
        assert_eq!(Request::get(["tools"]).query("q", absent).target, "/api/v1/tools");
    }
}
