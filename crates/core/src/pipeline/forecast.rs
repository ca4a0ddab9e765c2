//! What the stages would decide about a call now, without their effects: nothing runs, waits, counts or is stored.
//!
//! In: a submission. Out: the call with its tool, and the decisions of the stages that depend on nothing but the hub. Hooks are the
//! owner's code, so they do not run.

use super::{
    Submission, Valid,
    cache::{self, CacheForecast},
    dependencies, policy, resolve, status, validate,
};
use crate::{engine::Engine, execution::CallEnvelope};
use toolhub_types::error::{CallError, ErrorKind};

/// The decisions about a call.
pub(crate) struct Forecast {
    pub(crate) envelope: CallEnvelope,
    /// Why the call would be refused because of the tool's status.
    pub(crate) withheld: Option<CallError>,
    /// Why it would be refused because of the tool's dependencies.
    pub(crate) unmet_dependencies: Option<CallError>,
    /// Why it would be refused because of its arguments.
    pub(crate) invalid: Option<CallError>,
    /// Why it would be refused because of a rule.
    pub(crate) forbidden: Option<CallError>,
    pub(crate) cache: CacheForecast,
}

/// Decides about a call like its stages.
///
/// # Errors
/// When the tool is not registered, the id of the call or of its thread is not valid, or the store does not answer.
pub(crate) async fn forecast(engine: &Engine, submission: Submission) -> Result<Forecast, CallError> {
    let found = resolve::find(&engine.registry, submission).map_err(|refused| refused.error)?;
    let withheld = status::pre_check(&engine.statuses, &found).err();
    let unmet_dependencies = match dependencies::check(engine, &found).await {
        Err(error) if error.kind != ErrorKind::DependencyNotMet => return Err(error),
        checked => checked.err(),
    };
    let (envelope, invalid) = match validate::check_schema(found) {
        Ok(Valid(envelope)) => (envelope, None),
        Err(refusal) => {
            let (error, envelope) = *refusal;
            (envelope, Some(error))
        }
    };
    let forbidden = policy::denial(&envelope);
    let cache = cache::forecast(engine, &envelope).await?;
    Ok(Forecast { envelope, withheld, unmet_dependencies, invalid, forbidden, cache })
}
