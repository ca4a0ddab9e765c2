//! A request to the API, and what came back.
//!
//! Plain data, the same for both transports. Every part of a path is encoded here, so that no name can change where a request goes.

use axum::http::Method;
use serde_json::Value;

use crate::failure::Failure;

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
    /// Asks for something under `/api/v1`.
    pub(crate) fn get<'a>(path: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Has something done under `/api/v1`.
    pub(crate) fn post<'a>(path: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Asks whether a server lives.
    pub(crate) fn livez() -> Self {
        Self::at_root(Method::GET, ["livez"])
    }

    /// A request for the parts of a path under `/api/v1`.
    pub(crate) fn new<'a>(method: Method, path: impl IntoIterator<Item = &'a str>) -> Self {
        let parts = path.into_iter().fold(String::from("/api/v1"), |path, part| path + "/" + &percent_encode(part));
        Self { method, target: parts, headers: Vec::new(), body: None }
    }

    /// A request for the parts of a path at the root.
    pub(crate) fn at_root<'a>(method: Method, path: impl IntoIterator<Item = &'a str>) -> Self {
        let parts = path.into_iter().fold(String::new(), |path, part| path + "/" + &percent_encode(part));
        Self { method, target: parts, headers: Vec::new(), body: None }
    }

    /// One more member of the query, where there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let sign = if self.target.contains('?') { '&' } else { '?' };
            self.target += &format!("{sign}{name}={}", percent_encode(&value.to_string()));
        }
        self
    }

    /// One more header, where there is a value.
    pub(crate) fn header(mut self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        self.headers.extend(value.map(|value| (name, value.into())));
        self
    }

    /// Its body.
    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }
}

/// One part of a path, or one value of a query.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |out, byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out + &char::from(byte).to_string(),
        _ => out + &format!("%{byte:02X}"),
    })
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl ApiResponse {
    /// The answer, or the problem it holds.
    pub(crate) fn error_for_status(self) -> Result<Self, Failure> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(self.failure()) }
    }

    /// The problem it holds.
    pub(crate) fn failure(&self) -> Failure {
        let problem = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        let mut failure = Failure::from_problem(&problem, self.status);
        match failure.code.as_str() {
            // What the API says about headers helps nobody who types commands.
            "unauthenticated" => {
                failure.help.clear();
                failure
                    .help("give a key in TOOLHUB_TOKEN, or with --token; its owner makes one: toolhub keys create NAME")
            }
            _ if problem["code"].is_null() => failure.help("is this the address of a toolhub server?"),
            _ => failure,
        }
    }

    /// The document it holds.
    ///
    /// # Errors
    /// When it is no JSON: somebody else answered.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Failure::unexpected("the answer is no JSON").help("is this the address of a toolhub server?"))
    }

    /// The document as it was written.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Result<Vec<Value>, Failure> {
        let value = self.json()?;
        Ok(value["items"].as_array().cloned().unwrap_or_default())
    }

    /// Where a list goes on.
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
