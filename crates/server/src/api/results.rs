//! The results of calls whose work is done outside.
//!
//! In: a call that waits, and what came of it. Out: the call with its end. One that has ended, or is not for anybody outside, takes
//! none.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use toolhub_core::{ErrorKind, ReportError, ToolError};

use super::calls::{self, CallPath, CallView};
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
            .summary("Bring the result of a call whose work is done outside")
            .json_response::<CallView>(200, "It was taken; the call has ended with it")
            .problems(&[Code::CALL_NOT_FOUND, Code::CALL_ENDED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// What came of a call: one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "CallResult")]
struct ResultBody {
    /// What the tool returned, in any form.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Value")]
    output: Option<Value>,
    /// Why it failed, in words.
    #[schemars(length(min = 1))]
    error: Option<String>,
}

/// A member that is there, whatever it is: also null is a result.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

async fn report(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<CallPath>,
    links: Links,
    Body(body): Body<ResultBody>,
) -> ApiResult<Json<CallView>> {
    let id = of.parse_id()?;
    let result = match body {
        ResultBody { output: Some(output), error: None } => Ok(output),
        ResultBody { output: None, error: Some(error) } if !error.trim().is_empty() => Err(ToolError::new(error)),
        _ => {
            let detail = "a result is either `output` or `error`, and an error has words";
            return Err(Problem::new(Code::INVALID_REQUEST, detail));
        }
    };
    match app.hub().report_external_result(&who.tenant, id, result).await {
        Ok(()) => calls::find(&app, &who.tenant, id, &links).await?.map(Json).ok_or_else(|| calls::not_found(&of.id)),
        Err(ReportError::NotFound) => Err(calls::not_found(&of.id)),
        Err(ReportError::Late) => Err(Problem::new(Code::CALL_ENDED, format!("`{id}` has ended already"))),
        Err(ReportError::Store(error)) => Err(error.into()),
        Err(error) => Err(Problem::new(Code::CONFLICT, error.to_string())),
    }
}
