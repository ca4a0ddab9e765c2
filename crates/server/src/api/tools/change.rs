//! Tools created, replaced and removed through the API, by the host program.

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhub_core::{ErrorKind, StatusScope};

use super::{ToolPath, ToolView};
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
const NOUN: &str = "a tool";

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::POST, "/api/v1/tools", admin, "tools", create)
            .audited("tool.create")
            .summary("Create a tool")
            .json_response::<ToolView>(201, "The tool was created")
            .response_header(&[201], "Location", "The path of the tool.")
            .problems(&[Code::TOOL_EXISTS, Code::STORE_UNAVAILABLE]),
        Route::new(Method::PUT, "/api/v1/tools/{name}", admin, "tools", replace)
            .audited("tool.replace")
            .summary("Create a tool, or replace one that was created through the API")
            .json_response::<ToolView>(200, "The tool was replaced")
            .json_response::<ToolView>(201, "The tool was created")
            .response_header(&[200, 201], "Location", "The path of the tool.")
            .problems(&[Code::CONFLICT, Code::TOOL_EXISTS, Code::STORE_UNAVAILABLE]),
        Route::new(Method::DELETE, "/api/v1/tools/{name}", admin, "tools", remove)
            .audited("tool.remove")
            .summary("Remove a tool that was created through the API")
            .empty_response(204, "The tool is removed; running calls continue")
            .problems(&[Code::CONFLICT, Code::INVALID_REQUEST, Code::STORE_UNAVAILABLE])
            .refusals(&[ErrorKind::ToolNotFound]),
    ]
}

/// A tool to create. Its fields depend on its kind; the host program validates them.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct NewTool(Map<String, Value>);

impl JsonSchema for NewTool {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewTool".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "The fields of `[tools.NAME]` in a config, in camelCase; never a program, a file, a variable or `allowHosts`.",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "Its name; in a PUT the one in the path."},
                "description": {"type": "string", "description": "What it does, for the model."},
                "url": {"type": "string", "description": "The URL of its request; `{city}` stands for the argument `city`."},
                "method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "query": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {"description": "The JSON body; its strings are templates."},
                "auth": {"type": "object", "description": "The authentication of its requests, as in the config; secrets are strings."},
                "parameters": {"type": "object", "description": "A JSON Schema of the arguments; by default a string for each placeholder in the request."},
                "builtin": {"type": "string", "description": "The tool of the demo pack to use, instead of `url`."},
                "serverUrl": {"type": "string", "description": "The URL of the MCP server that has it, instead of `url`."},
                "tool": {"type": "string", "description": "Its name at its MCP server; by default the same."},
                "command": {"not": {}, "description": "Never: commands come from the config file."},
            },
        })
    }
}

impl NewTool {
    /// The name and the definition to pass to the host program.
    fn validate(mut self, path: Option<&str>) -> ApiResult<(String, Value)> {
        if self.0.contains_key("command") {
            let why = "commands are not accepted through the API; add the tool to the config file";
            return Err(field_problem("/command", why));
        }
        let name = match (path, sent_name(&self.0, NOUN)?) {
            (Some(path), Some(sent)) if path != sent => {
                return Err(field_problem("/name", format!("the name in the path is `{path}`, in the body `{sent}`")));
            }
            (Some(name), _) => name.to_owned(),
            (None, Some(sent)) => sent,
            (None, None) => return Err(field_problem("/name", "a tool needs a name")),
        };
        check_name(&name, "tool name")?;
        self.0.insert("name".into(), name.clone().into());
        Ok((name, Value::Object(self.0)))
    }
}

async fn create(State(app): State<App>, Body(tool): Body<NewTool>) -> ApiResult<Response> {
    let (name, tool) = tool.validate(None)?;
    let host_control = app.host_control().ok_or_else(|| not_supported("tools"))?;
    let created = run_to_end(host_control, |host| host.create_tool(tool)).await;
    created.map_err(|error| change_problem(&name, error))?;
    tool_response(&app, &name, StatusCode::CREATED).await
}

async fn replace(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(tool): Body<NewTool>,
) -> ApiResult<Response> {
    let (name, tool) = tool.validate(Some(&name))?;
    let host_control = app.host_control().ok_or_else(|| not_supported("tools"))?;
    let exists = app.hub().get(&name).is_some();
    let replaced = name.clone();
    let result = run_to_end(host_control, move |host| {
        Box::pin(
            async move { if exists { host.replace_tool(&replaced, tool).await } else { host.create_tool(tool).await } },
        )
    });
    result.await.map_err(|error| change_problem(&name, error))?;
    tool_response(&app, &name, if exists { StatusCode::OK } else { StatusCode::CREATED }).await
}

async fn remove(State(app): State<App>, Params(ToolPath { name }): Params<ToolPath>) -> ApiResult<StatusCode> {
    // A tool whose MCP server is not connected is not in the hub.
    if app.hub().source(&name).is_none() {
        // Fails for an unknown name, with the closest known names.
        app.hub().tool_status(&name, StatusScope::Shared).await?;
    }
    let host_control = app.host_control().ok_or_else(|| not_supported("tools"))?;
    let removed = name.clone();
    let result = run_to_end(host_control, |host| Box::pin(async move { host.remove_tool(&removed).await }));
    result.await.map_err(|error| match error {
        ToolChangeError::Configured => Problem::new(
            Code::CONFLICT,
            format!("`{name}` comes from the config or the host program; it is removed there"),
        )
        .hint("remove it from the config file, and POST /api/v1/reload; or POST /api/v1/tools/{name}/disable"),
        error => change_problem(&name, error),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

async fn tool_response(app: &App, name: &str, status: StatusCode) -> ApiResult<Response> {
    let info = app.hub().tool_status(name, StatusScope::Shared).await?;
    let removed = || Problem::new(Code::TOOL_NOT_FOUND, format!("`{name}` was removed in the meantime"));
    let tool = app.hub().get(name).ok_or_else(removed)?;
    let location = [(header::LOCATION, format!("/api/v1/tools/{name}"))];
    Ok((status, location, Json(ToolView::of(app, &tool, &info).with_policy(&tool))).into_response())
}

fn change_problem(name: &str, error: ToolChangeError) -> Problem {
    match error {
        ToolChangeError::NameTaken => Problem::new(Code::TOOL_EXISTS, format!("a tool named `{name}` exists already"))
            .hint("PUT /api/v1/tools/{name} replaces it, if it was created through the API"),
        ToolChangeError::Configured => {
            Problem::new(Code::TOOL_EXISTS, format!("`{name}` is defined in the config file, which takes precedence"))
                .hint("change it there, and POST /api/v1/reload")
        }
        ToolChangeError::Conflict => {
            Problem::new(Code::CONFLICT, format!("`{name}` was changed at the same time through another node"))
                .hint("look at it, and repeat the request if it is still wanted")
        }
        ToolChangeError::Refused(why) => Problem::new(Code::INVALID_REQUEST, why),
        ToolChangeError::Store(why) => not_stored(NOUN, name, &why),
    }
}
