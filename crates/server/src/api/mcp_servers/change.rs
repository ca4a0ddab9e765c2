//! MCP servers added and removed through the API, by the host program.

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::IntoResponse,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ServerPath, ServerSummary, find};
use crate::{
    api::new_definition::{check_name, field_problem, not_stored, not_supported, sent_name},
    app::App,
    extract::{Body, Params},
    host_control::{ToolChangeError, run_to_end},
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

/// What is defined here.
const NOUN: &str = "an MCP server";

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::POST, "/api/v1/mcp-servers", admin, "mcp servers", add)
            .audited("mcp_server.add")
            .summary("Add an MCP server at an address")
            .json_response::<ServerSummary>(201, "The server was added, and is being connected")
            .response_header(&[201], "Location", "The path of the server.")
            .problems(&[Code::COMMAND_FORBIDDEN, Code::CONFLICT, Code::STORE_UNAVAILABLE]),
        Route::new(Method::DELETE, "/api/v1/mcp-servers/{name}", admin, "mcp servers", remove)
            .audited("mcp_server.remove")
            .summary("Remove an MCP server that was added through the API, with its tools")
            .empty_response(204, "The server is removed; running calls of its tools may fail")
            .problems(&[Code::MCP_SERVER_NOT_FOUND, Code::CONFLICT, Code::INVALID_REQUEST, Code::STORE_UNAVAILABLE]),
    ]
}

/// A server to add; the host program validates its fields.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct NewServer(Map<String, Value>);

impl JsonSchema for NewServer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewMcpServer".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "The fields of `[mcp_servers.NAME]` in a config, in camelCase; never a program, a file, a variable or `allowHosts`.",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "Its name, with which the names of its tools begin."},
                "url": {"type": "string", "description": "Its address, which speaks streamable HTTP."},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Headers of the requests."},
                "auth": {"type": "object", "description": "The authentication of the requests, as in the config; secrets are strings."},
                "prefix": {"type": "string", "description": "The prefix of its tools' names, instead of its name."},
                "include": {"type": "array", "items": {"type": "string"}, "description": "The tools to offer, as globs; by default all."},
                "exclude": {"type": "array", "items": {"type": "string"}, "description": "The tools not to offer, as globs."},
                "readOnly": {"type": "array", "items": {"type": "string"}, "description": "The tools that change nothing, as globs."},
                "trust": {"type": "boolean", "description": "Whether to believe the server, and to run calls without approval."},
                "command": {"not": {}, "description": "Never: programs come from the config file."},
            },
            "required": ["name", "url"],
        })
    }
}

impl NewServer {
    /// The name and the definition to pass to the host program.
    fn validate(self) -> ApiResult<(String, Value)> {
        if self.0.contains_key("command") {
            let why =
                "programs are not accepted through the API: a key must not be able to run programs on this machine";
            return Err(Problem::new(Code::COMMAND_FORBIDDEN, why).hint(
                "add a section [mcp_servers.NAME] with the `command` to the config file, and POST /api/v1/reload",
            ));
        }
        let name = sent_name(&self.0, NOUN)?.ok_or_else(|| field_problem("/name", "an MCP server needs a name"))?;
        check_name(&name, "server name")?;
        Ok((name, Value::Object(self.0)))
    }
}

async fn add(State(app): State<App>, Body(server): Body<NewServer>) -> ApiResult<impl IntoResponse> {
    let (name, server) = server.validate()?;
    let host_control = app.host_control().ok_or_else(|| not_supported("MCP servers"))?;
    let added = run_to_end(host_control, |host| host.add_mcp_server(server)).await;
    added.map_err(|error| match error {
        ToolChangeError::NameTaken => {
            Problem::new(Code::CONFLICT, format!("an MCP server named `{name}` exists already"))
                .hint("choose another name, or DELETE /api/v1/mcp-servers/{name} first")
        }
        ToolChangeError::Configured => {
            Problem::new(Code::CONFLICT, format!("`{name}` is defined in the config file, which takes precedence"))
                .hint("change it there, and POST /api/v1/reload")
        }
        error => change_problem(&name, error),
    })?;
    let location = [(header::LOCATION, format!("/api/v1/mcp-servers/{name}"))];
    let info = find(&app, &name)?.info();
    Ok((StatusCode::CREATED, location, Json(ServerSummary::from(&info))))
}

async fn remove(State(app): State<App>, Params(ServerPath { name }): Params<ServerPath>) -> ApiResult<StatusCode> {
    find(&app, &name)?;
    let host_control = app.host_control().ok_or_else(|| not_supported("MCP servers"))?;
    let removed = name.clone();
    let result = run_to_end(host_control, |host| Box::pin(async move { host.remove_mcp_server(&removed).await }));
    result.await.map_err(|error| match error {
        ToolChangeError::Configured => Problem::new(
            Code::CONFLICT,
            format!("the MCP server `{name}` comes from the config or the host program; it is removed there"),
        )
        .hint(format!(
            "remove [mcp_servers.{name}], or the tool of this name, from the config file, and POST /api/v1/reload"
        )),
        error => change_problem(&name, error),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn change_problem(name: &str, error: ToolChangeError) -> Problem {
    match error {
        ToolChangeError::Store(why) => not_stored(NOUN, name, &why),
        other => Problem::new(Code::INVALID_REQUEST, other.to_string()),
    }
}
