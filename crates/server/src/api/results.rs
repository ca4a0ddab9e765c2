//! Results of external calls, reported by the program that executed them.
//!
//! In: a call that waits for its result, and the result. Out: the call with its outcome. A call that has ended, or is
//! not external, accepts none.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use toolhub_core::{ErrorKind, ReportError};

use super::{
    calls::{self, CallPath, CallView},
    reported_error::{self, ReportedError},
};
use crate::{
    app::App,
    extract::{Body, Params},
    json::Json,
    links::Links,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let call = Access::Needs(Scope::ToolsCall);
    vec![
        Route::new(Method::POST, "/api/v1/calls/{id}/result", call, "calls", report)
            .summary("Report the result of an external call")
            .json_response::<CallView>(200, "The result was accepted; the call has ended with it")
            .problems(&[Code::CALL_NOT_FOUND, Code::CALL_ENDED, Code::CONFLICT, Code::FORBIDDEN])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// The result of a call: either `output` or `error`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "CallResult")]
struct ResultBody {
    /// What the tool returned: any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Value")]
    output: Option<Value>,
    /// Why it failed: a text, or an object with a `message` and more.
    error: Option<ReportedError>,
}

/// A member that is present, even if it is null: null is a result too.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

async fn report(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<CallPath>,
    links: Links,
    Body(body): Body<ResultBody>,
) -> ApiResult<Json<CallView>> {
    let id = path.parse_id()?;
    let result = match body {
        ResultBody { output: Some(output), error: None } => Ok(output),
        ResultBody { output: None, error: Some(error) } => {
            let error = error.into_error()?;
            reported_error::authorize(&principal, &error)?;
            Err(error)
        }
        _ => {
            let detail = "a result is either `output` or `error`";
            return Err(Problem::new(Code::INVALID_REQUEST, detail));
        }
    };
    match app.hub().report_external_result(&principal.tenant, id, result).await {
        Ok(()) => {
            calls::find(&app, &principal.tenant, id, &links).await?.map(Json).ok_or_else(|| calls::not_found(&path.id))
        }
        Err(ReportError::NotFound) => Err(calls::not_found(&path.id)),
        Err(ReportError::Late) => Err(Problem::new(Code::CALL_ENDED, format!("`{id}` has ended already"))),
        Err(ReportError::Store(error)) => Err(error.into()),
        Err(error) => Err(Problem::new(Code::CONFLICT, error.to_string())),
    }
}
