//! Tools that come and go over the API: made by the program around the server, from what may come this way.

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
    app::App,
    extract::{Body, Params},
    host_control::ToolChangeError,
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let admin = Access::Needs(Scope::Admin);
    vec![
        Route::new(Method::POST, "/api/v1/tools", admin, "tools", create)
            .audited("tool.create")
            .summary("Make a tool")
            .json_response::<ToolView>(201, "It is there")
            .response_header(&[201], "Location", "Where it can be looked at.")
            .problems(&[Code::TOOL_EXISTS, Code::STORE_UNAVAILABLE]),
        Route::new(Method::PUT, "/api/v1/tools/{name}", admin, "tools", replace)
            .audited("tool.replace")
            .summary("Make a tool, or put another in the place of one that was made here")
            .json_response::<ToolView>(200, "It is the tool now")
            .json_response::<ToolView>(201, "It is there")
            .response_header(&[200, 201], "Location", "Where it can be looked at.")
            .problems(&[Code::TOOL_EXISTS, Code::STORE_UNAVAILABLE]),
        Route::new(Method::DELETE, "/api/v1/tools/{name}", admin, "tools", remove)
            .audited("tool.remove")
            .summary("Take a tool away that was made here")
            .empty_response(204, "It is gone; calls that run go on")
            .problems(&[Code::TOOL_EXISTS, Code::INVALID_REQUEST, Code::STORE_UNAVAILABLE])
            .refusals(&[ErrorKind::ToolNotFound]),
    ]
}

/// A tool to be made. What it may say depends on its kind; the program around the server judges it.
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
            "description": "What `[tools.NAME]` of a config may say, in camelCase; never a program, a file, a variable or `allowHosts`.",
            "properties": {
                "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "Its name; in a PUT the one in the path."},
                "description": {"type": "string", "description": "What it does, for the model."},
                "url": {"type": "string", "description": "The address of the request that it is; `{city}` stands for the argument `city`."},
                "method": {"type": "string", "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]},
                "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                "query": {"type": "object", "additionalProperties": {"type": "string"}},
                "body": {"description": "The JSON body; its texts are templates."},
                "auth": {"type": "object", "description": "How requests show who they are from, as in the config; secrets are texts."},
                "parameters": {"type": "object", "description": "A JSON Schema of the arguments; texts for all that the request names where it is left out."},
                "builtin": {"type": "string", "description": "The tool of the demo pack that it is, in the place of `url`."},
                "command": {"not": {}, "description": "Never: commands come from the config file."},
            },
        })
    }
}

impl NewTool {
    /// What the program around the server is asked for.
    fn validate(mut self, path: Option<&str>) -> ApiResult<(String, Value)> {
        let refuse = |pointer: &str, detail: String| {
            let flaw = serde_json::json!({"pointer": pointer, "detail": detail});
            Problem::new(Code::INVALID_REQUEST, detail).with("errors", [flaw])
        };
        if self.0.contains_key("command") {
            let why = "a command is never taken over the API; put the tool into the config file";
            return Err(refuse("/command", why.into()));
        }
        let said = match self.0.get("name") {
            None => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err(refuse("/name", "a tool's name is a text".into())),
        };
        let name = match (path, said) {
            (Some(path), Some(said)) if path != said => {
                return Err(refuse("/name", format!("the path says `{path}`, the body `{said}`")));
            }
            (Some(name), _) => name.to_owned(),
            (None, Some(said)) => said,
            (None, None) => return Err(refuse("/name", "a tool needs a name".into())),
        };
        toolhub_core::ToolName::new(name.as_str()).map_err(|wrong| refuse("/name", wrong.to_string()))?;
        self.0.insert("name".into(), name.clone().into());
        Ok((name, Value::Object(self.0)))
    }
}

async fn create(State(app): State<App>, Body(tool): Body<NewTool>) -> ApiResult<Response> {
    let (name, tool) = tool.validate(None)?;
    let steward = app.host_control().ok_or_else(not_supported)?;
    steward.create_tool(tool).await.map_err(|error| change_problem(&name, error))?;
    tool_response(&app, &name, StatusCode::CREATED).await
}

async fn replace(
    State(app): State<App>,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(tool): Body<NewTool>,
) -> ApiResult<Response> {
    let (name, tool) = tool.validate(Some(&name))?;
    let steward = app.host_control().ok_or_else(not_supported)?;
    let there = app.hub().get(&name).is_some();
    let done = if there { steward.replace_tool(&name, tool).await } else { steward.create_tool(tool).await };
    done.map_err(|error| change_problem(&name, error))?;
    tool_response(&app, &name, if there { StatusCode::OK } else { StatusCode::CREATED }).await
}

async fn remove(State(app): State<App>, Params(ToolPath { name }): Params<ToolPath>) -> ApiResult<StatusCode> {
    // An unknown name is told with the names close to it.
    app.hub().tool_status(&name, StatusScope::Shared).await?;
    let steward = app.host_control().ok_or_else(not_supported)?;
    steward.remove_tool(&name).await.map_err(|error| change_problem(&name, error))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn tool_response(app: &App, name: &str, status: StatusCode) -> ApiResult<Response> {
    let info = app.hub().tool_status(name, StatusScope::Shared).await?;
    let gone = || Problem::new(Code::TOOL_NOT_FOUND, format!("`{name}` was taken away again meanwhile"));
    let tool = app.hub().get(name).ok_or_else(gone)?;
    let location = [(header::LOCATION, format!("/api/v1/tools/{name}"))];
    Ok((status, location, Json(ToolView::of(app, &tool, &info).with_policy(&tool))).into_response())
}

fn not_supported() -> Problem {
    Problem::new(Code::INVALID_REQUEST, "this server takes no tools over the API; its program makes them in code")
}

fn change_problem(name: &str, error: ToolChangeError) -> Problem {
    match error {
        ToolChangeError::NameTaken => Problem::new(Code::TOOL_EXISTS, format!("there is a tool named `{name}`"))
            .hint("PUT /api/v1/tools/{name} puts another in its place, if it was made over the API"),
        ToolChangeError::Configured => {
            Problem::new(Code::TOOL_EXISTS, format!("`{name}` stands in the config file, which wins"))
                .hint("change it there, and POST /api/v1/reload")
        }
        ToolChangeError::Refused(why) => Problem::new(Code::INVALID_REQUEST, why),
        ToolChangeError::Store(why) => {
            tracing::error!(tool = name, %why, "a change of a tool could not be kept");
            Problem::new(Code::STORE_UNAVAILABLE, "the change could not be kept; everything is as it was")
        }
    }
}
