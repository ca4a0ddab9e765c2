//! Connects to an MCP server through a hub and calls its tools, for the suite `mcp` of `./test`.
//!
//! usage: mcp_calls URL
//!
//! The official conformance suite starts it with `MCP_CONFORMANCE_PROTOCOL_VERSION`, and `MCP_CONFORMANCE_CONTEXT`: a JSON object
//! with the calls to make (`toolCalls`) and credentials. Without calls, every tool is called once, with made-up arguments. Input
//! requests are answered with their defaults.

use std::{env, error::Error, sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use toolhub_connect::{
    mcp::{McpServer, Protocol},
    rest::{Auth, Secret},
};
use toolhub_core::{BoxFuture, InputHandler, InputKind, InputRequest, SourceConnection, ToolHub};

/// How long the server may take until its tools are listed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().next_back().ok_or("usage: mcp_calls URL")?;
    let protocol = match env::var("MCP_CONFORMANCE_PROTOCOL_VERSION") {
        Ok(version) if version.as_str() <= "2025-11-25" => Protocol::Legacy,
        Ok(_) => Protocol::Modern,
        Err(_) => Protocol::Auto,
    };
    let context = env::var("MCP_CONFORMANCE_CONTEXT").map_or(Ok(json!({})), |text| serde_json::from_str(&text))?;
    let mut server = McpServer::http("server", &url).prefix("").allow_host("localhost").trust().protocol(protocol);
    if let (Some(id), Some(secret), Ok(token_url)) =
        (context["client_id"].as_str(), context["client_secret"].as_str(), env::var("TOKEN_URL"))
    {
        server = server.auth(Auth::client_credentials(token_url, id, Secret::literal(secret)));
    }
    let hub = ToolHub::builder().source(server.source()?).build().await?;
    tokio::time::timeout(CONNECT_TIMEOUT, async {
        while hub.sources()[0].info().status.connection != SourceConnection::Connected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .map_err(|_| format!("{:?}", hub.sources()[0].info()))?;
    let calls: Vec<(String, Value)> = match context["toolCalls"].as_array() {
        Some(calls) => calls.iter().map(|call| (text(&call["name"]), without_nulls(&call["arguments"]))).collect(),
        None => {
            let tools = hub.list(&Default::default());
            tools.iter().map(|tool| (tool.definition.name.to_string(), values(&tool.definition.parameters))).collect()
        }
    };
    let outcomes = join_all(calls.iter().map(|(tool, arguments)| {
        let call = hub.call(tool, arguments.clone()).input(Arc::new(Defaults));
        async move { (tool, call.await) }
    }));
    for (tool, outcome) in outcomes.await {
        println!("{tool}: {}", outcome.model_text());
    }
    hub.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// The hub refuses `null` where the schema of the tool does.
fn without_nulls(arguments: &Value) -> Value {
    let mut arguments = arguments.clone();
    if let Some(members) = arguments.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    arguments
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Answers forms with the defaults of their fields.
struct Defaults;

impl InputHandler for Defaults {
    fn accepts(&self, kind: InputKind) -> bool {
        kind == InputKind::Form
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Option<Value>> {
        let content = values(&request.params["requestedSchema"]);
        Box::pin(async move { Some(json!({"action": "accept", "content": content})) })
    }
}

/// An object that fits a simple schema.
fn values(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let value = |schema: &Value| match (schema.get("default"), schema["type"].as_str()) {
        (Some(default), _) => default.clone(),
        (None, Some("integer" | "number")) => json!(5),
        (None, Some("boolean")) => json!(true),
        _ => json!("text"),
    };
    Value::Object(properties.iter().map(|(name, schema)| (name.clone(), value(schema))).collect::<Map<_, _>>())
}
