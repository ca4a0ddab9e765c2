//! A minimal MCP client, through the router without a socket, in both eras of the protocol.

use axum::Router;
use serde_json::{Value, json};

use crate::support_api::{ApiFixture, EventReader, Reply, send};

/// The last protocol version with sessions, and the first one without.
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const MODERN: &str = "2026-07-28";

/// A client at one address, with one key.
#[derive(Clone)]
pub(crate) struct McpClient {
    pub(crate) router: Router,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The session; without one the client speaks the modern era.
    pub(crate) session: Option<String>,
    /// What the client can do.
    pub(crate) capabilities: Value,
}

impl McpClient {
    /// A client of the modern era.
    pub(crate) fn modern(router: &Router, path: &str) -> Self {
        Self { router: router.clone(), path: path.into(), headers: Vec::new(), session: None, capabilities: json!({}) }
    }

    /// A client with a session.
    pub(crate) async fn legacy(router: &Router, path: &str) -> Self {
        Self::modern(router, path).initialize().await
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        self.headers.push(("authorization".into(), format!("Bearer {key}")));
        self
    }

    pub(crate) fn can(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Opens a session.
    pub(crate) async fn initialize(mut self) -> Self {
        let mut opening = initialize_message(LEGACY);
        opening["params"]["capabilities"] = self.capabilities.clone();
        let reply = self.post(&opening).await;
        let answer = reply.expect_status(200);
        assert_eq!(answer["result"]["protocolVersion"], LEGACY, "{answer}");
        self.session = Some(reply.header("mcp-session-id").to_owned());
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&initialized).await.status, 202);
        self
    }

    /// Sends a message with the headers of the era.
    pub(crate) async fn post(&self, message: &Value) -> Reply {
        self.send("POST", Some(message), &[]).await
    }

    /// Posts a text with the headers of a message, which it may resemble.
    pub(crate) async fn post_text(&self, like: &Value, text: String) -> Reply {
        let headers = self.all_headers(Some(like));
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        send(&self.router, "POST", &self.path, Some(text), &headers).await
    }

    pub(crate) async fn send(&self, method: &str, message: Option<&Value>, more: &[(&str, &str)]) -> Reply {
        let headers = self.all_headers(message);
        let mut headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        headers.extend(more);
        send(&self.router, method, &self.path, message.map(Value::to_string), &headers).await
    }

    pub(crate) fn all_headers(&self, message: Option<&Value>) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        add("accept", "application/json, text/event-stream");
        let method = message.and_then(|message| message["method"].as_str()).unwrap_or_default();
        match &self.session {
            Some(session) => {
                add("mcp-session-id", session);
                add("mcp-protocol-version", LEGACY);
            }
            None if method != "initialize" && message.is_some() => {
                add("mcp-protocol-version", MODERN);
                add("mcp-method", method);
                let params = &message.unwrap_or(&Value::Null)["params"];
                if let Some(name) = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str()) {
                    add("mcp-name", name);
                }
            }
            None => {}
        }
        headers
    }

    /// Makes a request with id 1; returns its answer.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let reply = self.post(&self.message(method, params)).await;
        if reply.header("content-type").starts_with("text/event-stream") {
            return events(&reply.text).pop().expect("an answer");
        }
        reply.json()
    }

    /// A request with id 1, with the `_meta` of the era.
    pub(crate) fn message(&self, method: &str, mut params: Value) -> Value {
        if self.session.is_none() {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
        }
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    /// Makes a request that succeeds; returns its result.
    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// Makes a request that fails; returns its error.
    pub(crate) async fn error(&self, method: &str, params: Value) -> Value {
        let mut answer = self.request(method, params).await;
        assert!(answer["result"].is_null(), "{answer}");
        answer["error"].take()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Calls a tool; returns the messages of the call.
    pub(crate) async fn open(&self, fixture: &ApiFixture, tool: &str, arguments: Value) -> EventReader {
        self.open_with(fixture, json!({"name": tool, "arguments": arguments})).await
    }

    /// Makes a call with these parameters; returns its messages.
    pub(crate) async fn open_with(&self, fixture: &ApiFixture, params: Value) -> EventReader {
        self.stream(fixture, Some(&self.message("tools/call", params))).await
    }

    /// Sends a message, or asks for the stream of the session; returns the stream.
    async fn stream(&self, fixture: &ApiFixture, message: Option<&Value>) -> EventReader {
        let headers = self.all_headers(message);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let method = if message.is_some() { "POST" } else { "GET" };
        fixture.stream_request(method, &self.path, message.map(Value::to_string), &headers).await
    }

    /// Opens the stream of a session, or listens without one.
    pub(crate) async fn listen(&self, fixture: &ApiFixture, notifications: Value) -> EventReader {
        let filter = json!({"notifications": notifications});
        let message = self.session.is_none().then(|| self.message("subscriptions/listen", filter));
        let mut stream = self.stream(fixture, message.as_ref()).await;
        if self.session.is_none() {
            assert_eq!(next(&mut stream).await["method"], "notifications/subscriptions/acknowledged");
        }
        stream
    }

    /// The names of the listed tools.
    pub(crate) async fn names(&self) -> Vec<String> {
        let list = self.result("tools/list", json!({})).await;
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// A client of each era.
pub(crate) async fn both_eras(fixture: &ApiFixture) -> [McpClient; 2] {
    [McpClient::legacy(&fixture.router, "/mcp").await, McpClient::modern(&fixture.router, "/mcp")]
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// The next message of a stream.
pub(crate) async fn next(stream: &mut EventReader) -> Value {
    loop {
        let chunk = stream.next_chunk().await.expect("a message");
        if let Some(message) = events(&chunk).pop() {
            return message;
        }
    }
}

pub(crate) fn initialize_message(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

/// The messages of an event stream.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| !data.is_empty());
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}
