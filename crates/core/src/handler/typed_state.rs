//! `State<S>`: the extractor of a tool's typed state.
//!
//! In: a call. Out: the deserialized state, and after the tool returned the value to commit. `pipeline/close.rs` commits it.

use std::{
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use super::{FromCall, checkout};
use crate::execution::CallContext;
use toolhub_state::{Checkout, LoadedContext, PendingState, ToolState, data};
use toolhub_storage::backend::Row;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// The state of a tool in the thread of the call.
///
/// Dereferences to the value. When the tool returns `Ok`, a changed state is committed together with the end of the call, with
/// a compare-and-set on its version; when it returns `Err`, nothing is committed.
///
/// Calls of tools that are not read-only hold a write lock on the state, on this node; others wait for it within their timeout.
/// A read-only tool does not wait and sees the last committed state.
pub struct State<S: ToolState> {
    /// `Some` until this is dropped.
    value: Option<S>,
    dirty: bool,
    updates: Vec<UpdateFn<S>>,
    explicit_save: Option<ExplicitSave>,
    version: u64,
    pending: Arc<TypedPendingState<S>>,
}

type UpdateFn<S> = Box<dyn Fn(&mut S) + Send>;

/// Holds the value between the end of the tool and the commit.
struct TypedPendingState<S> {
    phase: Mutex<StatePhase<S>>,
    /// The loaded bytes, so that an unchanged value is not committed; `None` if it was migrated.
    loaded: Option<Arc<[u8]>>,
    /// Whether changes are committed without a call of `save`.
    auto_save: bool,
}

enum StatePhase<S> {
    /// The tool still holds the value.
    InUse,
    Returned(ReturnedState<S>),
    /// The value was serialized; the updates can be reapplied.
    Serialized(Vec<UpdateFn<S>>),
}

/// The value and its changes when the tool dropped it.
struct ReturnedState<S> {
    value: S,
    /// Whether it was borrowed mutably outside `update`.
    dirty: bool,
    updates: Vec<UpdateFn<S>>,
    explicit_save: Option<ExplicitSave>,
}

/// The state at the last call of `save`.
struct ExplicitSave {
    text: Vec<u8>,
    /// Number of updates that it includes.
    update_count: usize,
    /// Whether it was borrowed mutably outside `update` before.
    dirty: bool,
}

impl<S: ToolState> State<S> {
    /// The version of the loaded state; 0 if the thread has none yet.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes the state with a repeatable function: with the conflict resolution `retry`, it is applied again to the newer state
    /// after a conflict. It must depend on nothing but the state, and its result may be out of date at the time of the commit.
    pub fn update<R>(&mut self, change: impl Fn(&mut S) -> R + Send + 'static) -> R {
        let value = self.value.as_mut().expect("the value is taken only on drop");
        let result = change(value);
        self.updates.push(Box::new(move |value| {
            change(value);
        }));
        result
    }

    /// Saves the current value, to be committed when the tool returns `Ok`. Only needed if `auto_save` is off; later changes are
    /// then lost unless they are saved again.
    ///
    /// # Errors
    /// When the state cannot be serialized as JSON.
    pub fn save(&mut self) -> Result<(), ToolError> {
        let value = self.value.as_ref().expect("the value is taken only on drop");
        self.explicit_save =
            Some(ExplicitSave { text: encode(value)?, update_count: self.updates.len(), dirty: self.dirty });
        Ok(())
    }

    pub(crate) async fn check_out(cx: &CallContext) -> Result<Self, ToolError> {
        let internal = |text| ToolError::operator_only(ErrorKind::Internal, text);
        let name = StateName::new(S::NAME).map_err(|error| internal(error.to_string()))?;
        let thread = cx.thread().ok_or_else(|| internal(format!("the state `{name}` needs a thread")))?;
        let manager = &cx.services().state;
        let context = manager.context(&name, thread);
        let found = checkout::check_out(cx, &context).await?;
        let value = decode::<S>(found.business.as_ref())?;
        let LoadedContext { business, .. } = &found;
        let loaded = business.as_ref().filter(|row| row.schema == S::VERSION).map(|row| row.value.clone());
        let version = business.as_ref().map_or(0, |row| row.version.number);
        let pending = Arc::new(TypedPendingState {
            phase: Mutex::new(StatePhase::InUse),
            loaded,
            auto_save: cx.envelope().tool.state.auto_save.unwrap_or_else(|| manager.auto_save()),
        });
        cx.checkouts().put(Checkout { context, loaded: found, pending: pending.clone() })?;
        Ok(Self { value: Some(value), dirty: false, updates: Vec::new(), explicit_save: None, version, pending })
    }
}

/// Deserializes a row, with migration from an older version; the default if there is no row.
fn decode<S: ToolState>(row: Option<&Row>) -> Result<S, ToolError> {
    let Some(row) = row else { return Ok(S::default()) };
    let malformed = |error: serde_json::Error| unreadable::<S>(&error.to_string());
    if row.schema == S::VERSION {
        return serde_json::from_slice(&row.value).map_err(malformed);
    }
    S::migrate(row.schema, serde_json::from_slice(&row.value).map_err(malformed)?).map_err(|why| unreadable::<S>(&why))
}

fn unreadable<S: ToolState>(reason: &str) -> ToolError {
    ToolError::operator_only(
        ErrorKind::StateUnreadable,
        format!("the stored state `{}` cannot be read: {reason}", S::NAME),
    )
}

/// Serializes a value. A value that could not be deserialized again, for example because of its depth, must not be stored.
fn encode<S: ToolState>(value: &S) -> Result<Vec<u8>, ToolError> {
    let failed = |text| ToolError::operator_only(ErrorKind::ToolError, text);
    let bytes = serde_json::to_vec(value)
        .map_err(|error| failed(format!("the state `{}` cannot be written as JSON: {error}", S::NAME)))?;
    data::check_depth(&bytes).map_err(|error| failed(error.to_string()))?;
    match serde_json::from_slice::<S>(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(failed(format!("the state `{}` could not be read back: {error}", S::NAME))),
    }
}

impl<S: ToolState> FromCall for State<S> {
    const STATE: Option<&'static str> = Some(S::NAME);

    async fn from_call(cx: &CallContext) -> Result<Self, ToolError> {
        // The tool has not run yet.
        Self::check_out(cx).await.map_err(|error| error.effect(Effect::None))
    }
}

impl<S: ToolState> TypedPendingState<S> {
    fn replace_phase(&self, phase: StatePhase<S>) -> StatePhase<S> {
        std::mem::replace(&mut *self.phase.lock().unwrap_or_else(PoisonError::into_inner), phase)
    }
}

impl<S> Drop for TypedPendingState<S> {
    /// The drop of the author's value may panic. The call has its outcome by then, which a panic must not change.
    fn drop(&mut self) {
        let phase = self.phase.get_mut().unwrap_or_else(PoisonError::into_inner);
        let phase = std::mem::replace(phase, StatePhase::InUse);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(phase))) {
            std::mem::forget(panic);
        }
    }
}

impl<S: ToolState> PendingState for TypedPendingState<S> {
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError> {
        let StatePhase::Returned(returned) = self.replace_phase(StatePhase::InUse) else {
            let text = "the tool returned while something it started still held the state";
            return Err(ToolError::operator_only(
                ErrorKind::ToolError,
                format!("{text} `{}`; it was not saved", S::NAME),
            ));
        };
        let ReturnedState { value, mut dirty, mut updates, explicit_save } = returned;
        let bytes = match explicit_save {
            _ if self.auto_save && !dirty && updates.is_empty() => return Ok(None),
            _ if self.auto_save => encode(&value)?,
            None => return Ok(None),
            Some(saved) => {
                updates.truncate(saved.update_count);
                dirty = saved.dirty;
                saved.text
            }
        };
        if self.loaded.as_deref() == Some(&bytes) {
            return Ok(None);
        }
        // Only a value that was changed by updates alone can be rebuilt after a conflict.
        if !dirty {
            self.replace_phase(StatePhase::Serialized(updates));
        }
        Ok(Some(bytes))
    }

    fn layout(&self) -> u32 {
        S::VERSION
    }

    fn reapply(&self, current: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError> {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let StatePhase::Serialized(updates) = &*phase else { return Ok(None) };
        let mut value = decode::<S>(current)?;
        updates.iter().for_each(|update| update(&mut value));
        encode(&value).map(Some)
    }

    fn merge(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String> {
        let describe = |error: ToolError| error.to_string();
        let mine = serde_json::from_slice(mine).map_err(|error| error.to_string())?;
        let merged = S::merge(decode(base).map_err(describe)?, mine, decode(Some(theirs)).map_err(describe)?)?;
        encode(&merged).map_err(describe)
    }
}

impl<S: ToolState> Deref for State<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.value.as_ref().expect("the value is taken only on drop")
    }
}

impl<S: ToolState> DerefMut for State<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.dirty = true;
        self.value.as_mut().expect("the value is taken only on drop")
    }
}

impl<S: ToolState> Drop for State<S> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let (updates, explicit_save) = (std::mem::take(&mut self.updates), self.explicit_save.take());
        self.pending.replace_phase(StatePhase::Returned(ReturnedState {
            value,
            dirty: self.dirty,
            updates,
            explicit_save,
        }));
    }
}
