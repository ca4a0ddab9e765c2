//! `JsonState`: the untyped state of a tool, checked out for one call.
//!
//! In: a call of a tool built with `json_state`. Out: the current value, and a slot for the value to commit.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use smol_str::SmolStr;

use super::checkout;
use crate::execution::CallContext;
use toolhub_state::{Checkout, PendingState, StateKind, data, entry, merge};
use toolhub_storage::backend::Row;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// The schema version of untyped state.
const LAYOUT: u32 = 1;

/// The state of a tool as plain JSON, checked out for one call. For executors and instances whose tools are built with
/// [`ToolBuilder::json_state`](crate::ToolBuilder::json_state).
pub struct JsonState {
    pub(crate) value: Value,
    parameter: Option<SmolStr>,
    pending: Arc<JsonPendingState>,
}

/// The value to commit.
struct JsonPendingState {
    next: Mutex<Option<Vec<u8>>>,
    layout: u32,
    /// The loaded value, so that an unchanged one is not committed.
    loaded: Option<Arc<[u8]>>,
}

impl JsonState {
    /// Checks out the state of the call's tool. A changed value is committed with the end of the call.
    ///
    /// # Errors
    /// When the tool has no state, when it cannot be read, or when the same call has checked it out already.
    pub async fn from_context(cx: &CallContext) -> Result<Self, ToolError> {
        let name = cx.envelope().tool.state.names.first();
        let name = name.ok_or_else(|| ToolError::operator_only(ErrorKind::Internal, "the tool has no state"))?;
        cx.wait_before_start(Self::check_out(cx, name)).await?
    }

    /// The stored value; an empty object if there is none.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The name of the argument that holds the state; `None` with `state_injection(false)`.
    #[must_use]
    pub fn parameter(&self) -> Option<&str> {
        self.parameter.as_deref()
    }

    async fn check_out(cx: &CallContext, name: &StateName) -> Result<Self, ToolError> {
        let failed = |kind, text| ToolError::operator_only(kind, text).effect(Effect::None);
        let thread =
            cx.thread().ok_or_else(|| failed(ErrorKind::Internal, format!("the state `{name}` needs a thread")))?;
        let manager = &cx.services().state;
        let context = manager.context(name, thread);
        let found = checkout::check_out(cx, &context).await.map_err(|error| error.effect(Effect::None))?;
        let value = match &found.business {
            None => Value::Object(Map::new()),
            Some(row) => entry::read_data(&context, StateKind::Business, row)
                .map_err(|error| failed(ErrorKind::StateUnreadable, error.to_string()))?,
        };
        let layout = found.business.as_ref().map_or(LAYOUT, |row| row.schema);
        let loaded = found.business.as_ref().map(|row| row.value.clone());
        let pending = Arc::new(JsonPendingState { next: Mutex::default(), layout, loaded });
        cx.checkouts().put(Checkout { context, loaded: found, pending: pending.clone() })?;
        let parameter = cx.envelope().tool.state.parameter.clone();
        Ok(Self { value, parameter, pending })
    }

    /// Sets the value to commit if the call succeeds.
    ///
    /// # Errors
    /// When it is not a JSON object, or nested too deeply.
    pub fn set(&self, next: Value) -> Result<(), ToolError> {
        let members = data::into_object(next);
        let text = members.and_then(|members| data::encode_state(StateKind::Business, &members, usize::MAX));
        let text = text.map_err(|error| ToolError::operator_only(ErrorKind::ToolError, error.to_string()))?;
        *self.pending.lock() = Some(text.to_vec());
        Ok(())
    }

    /// Sets these members of the loaded value, and keeps the others.
    pub(super) fn merge(&self, changes: Value) -> Result<(), ToolError> {
        match (self.value.clone(), changes) {
            (Value::Object(mut members), Value::Object(changes)) => {
                members.extend(changes);
                self.set(Value::Object(members))
            }
            (_, changes) => self.set(changes),
        }
    }
}

impl JsonPendingState {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingState for JsonPendingState {
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError> {
        Ok(self.lock().take().filter(|next| self.loaded.as_deref() != Some(next)))
    }

    fn layout(&self) -> u32 {
        self.layout
    }

    fn reapply(&self, _: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError> {
        Ok(None)
    }

    fn merge(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String> {
        if theirs.schema != self.layout {
            return Err(format!("its layout changed from {} to {}", self.layout, theirs.schema));
        }
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).map_err(|error| error.to_string());
        let base = base.map_or(Ok(Value::Object(Map::new())), |row| read(&row.value))?;
        let merged = merge::three_way(&base, &read(mine)?, &read(&theirs.value)?)
            .map_err(|pointer| merge::describe_conflict(&pointer))?;
        serde_json::to_vec(&merged).map_err(|error| error.to_string())
    }
}
