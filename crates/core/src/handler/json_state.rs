//! The state of a tool that speaks JSON and has no type for it.
//!
//! In: a call of a tool that said `json_state`. Out: what it remembers, and a place for what it is to remember from then on.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use smol_str::SmolStr;

use super::checkout;
use crate::{
    execution::CallContext,
    state::{Checkout, PendingState, StateKind, data, entry, merge},
};
use toolhub_storage::backend::Row;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// The layout of a state without a type.
const LAYOUT: u32 = 1;

/// What a tool remembers in plain JSON, taken out for one call. For executors and instances whose tools are built with
/// [`ToolBuilder::json_state`](crate::ToolBuilder::json_state).
pub struct JsonState {
    pub(crate) value: Value,
    parameter: Option<SmolStr>,
    pending: Arc<JsonPendingState>,
}

/// What is to be remembered instead.
struct JsonPendingState {
    next: Mutex<Option<Vec<u8>>>,
    layout: u32,
    /// What was loaded, to tell a change from a repetition.
    loaded: Option<Arc<[u8]>>,
}

impl JsonState {
    /// Takes the state of the call's tool out. Whatever is done with it, it is committed with the end of the call.
    ///
    /// # Errors
    /// When the tool has none, when it cannot be read, and when it was taken out before by the same call.
    pub async fn from_context(cx: &CallContext) -> Result<Self, ToolError> {
        let name = cx.envelope().tool.state.names.first();
        let name = name.ok_or_else(|| ToolError::operator_only(ErrorKind::Internal, "the tool has no state"))?;
        cx.wait_before_start(Self::check_out(cx, name)).await?
    }

    /// What is remembered; an empty object where nothing is.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The name under which the tool is to find it; `None` where it is not handed over (`state_injection(false)`).
    #[must_use]
    pub fn parameter(&self) -> Option<&str> {
        self.parameter.as_deref()
    }

    async fn check_out(cx: &CallContext, name: &StateName) -> Result<Self, ToolError> {
        let hidden = |kind, text| ToolError::operator_only(kind, text).effect(Effect::None);
        let thread = cx.thread().ok_or_else(|| hidden(ErrorKind::Internal, format!("`{name}` needs a thread")))?;
        let manager = &cx.services().state;
        let context = manager.context(name, thread);
        let found = checkout::check_out(cx, &context).await.map_err(|error| error.effect(Effect::None))?;
        let value = match &found.business {
            None => Value::Object(Map::new()),
            Some(row) => entry::read_data(&context, StateKind::Business, row)
                .map_err(|error| hidden(ErrorKind::StateUnreadable, error.to_string()))?,
        };
        let layout = found.business.as_ref().map_or(LAYOUT, |row| row.schema);
        let loaded = found.business.as_ref().map(|row| row.value.clone());
        let slip = Arc::new(JsonPendingState { next: Mutex::default(), layout, loaded });
        cx.checkouts().put(Checkout { context, loaded: found, pending: slip.clone() })?;
        let parameter = cx.envelope().tool.state.parameter.clone();
        Ok(Self { value, parameter, pending: slip })
    }

    /// Remembers this instead, if the call ends well.
    ///
    /// # Errors
    /// When it is no JSON object, or nested too deeply.
    pub fn set(&self, next: Value) -> Result<(), ToolError> {
        let members = data::into_object(next);
        let text = members.and_then(|members| data::encode_state(StateKind::Business, &members, usize::MAX));
        let text = text.map_err(|error| ToolError::operator_only(ErrorKind::ToolError, error.to_string()))?;
        *self.pending.lock() = Some(text.to_vec());
        Ok(())
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
            return Err(format!("it has layout {} now, and had {}", theirs.schema, self.layout));
        }
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).map_err(|error| error.to_string());
        let base = base.map_or(Ok(Value::Object(Map::new())), |row| read(&row.value))?;
        let merged =
            merge::three_way(&base, &read(mine)?, &read(&theirs.value)?).map_err(|at| merge::describe_conflict(&at))?;
        serde_json::to_vec(&merged).map_err(|error| error.to_string())
    }
}
