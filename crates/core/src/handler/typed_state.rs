//! `State<S>`: a tool's state in its own type.

use std::{
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use super::{FromCall, checkout};
use crate::{
    execution::CallContext,
    state::{Checkout, LoadedContext, PendingState, ToolState, data},
};
use toolhub_storage::backend::Row;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// The state of a tool in the thread of the call.
///
/// Read and change it like the value it holds. When the tool returns `Ok`, a changed state is committed together with
/// the end of the call, provided nobody else changed it meanwhile; when it returns `Err`, the state stays as it was.
///
/// Calls of tools that are not read-only have the state to themselves, on this node; the others wait, within their time.
/// A read-only tool waits for nobody and sees what was committed last.
pub struct State<S: ToolState> {
    /// Present until this is dropped.
    value: Option<S>,
    dirty: bool,
    updates: Vec<UpdateFn<S>>,
    explicit_save: Option<ExplicitSave>,
    version: u64,
    pending: Arc<TypedPendingState<S>>,
}

type UpdateFn<S> = Box<dyn Fn(&mut S) + Send>;

/// Where the value waits after the tool has let go of it.
struct TypedPendingState<S> {
    phase: Mutex<StatePhase<S>>,
    /// What was loaded, to tell a change from a look through `&mut`; `None` where it has another layout now.
    loaded: Option<Arc<[u8]>>,
    /// Whether a change is committed without being saved on purpose.
    auto_save: bool,
}

enum StatePhase<S> {
    /// The tool still has the value.
    InUse,
    Returned(ReturnedState<S>),
    /// What can be done once more, after the value was written down.
    Serialized(Vec<UpdateFn<S>>),
}

/// What the tool left.
struct ReturnedState<S> {
    value: S,
    /// Whether it was changed otherwise than by `update`.
    dirty: bool,
    updates: Vec<UpdateFn<S>>,
    explicit_save: Option<ExplicitSave>,
}

/// What was saved on purpose.
struct ExplicitSave {
    text: Vec<u8>,
    /// How many of the changes are in it.
    update_count: usize,
    /// Whether it was changed otherwise, too.
    dirty: bool,
}

impl<S: ToolState> State<S> {
    /// How often the state has been committed before; 0 when the thread has none yet.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes the state in a way that can be repeated: where conflicts are resolved by `retry`, and somebody else was
    /// quicker, the change is made again to what is there then. It must depend on nothing but the state, and what it
    /// returns may be out of date by the time of the commit.
    pub fn update<R>(&mut self, change: impl Fn(&mut S) -> R + Send + 'static) -> R {
        let value = self.value.as_mut().expect("the value leaves only when this is dropped");
        let result = change(value);
        self.updates.push(Box::new(move |value| {
            change(value);
        }));
        result
    }

    /// Marks the state as it is now to be committed when the tool returns `Ok`. Only needed where `auto_save` is off;
    /// there, what is changed afterwards is lost unless it is saved once more.
    ///
    /// # Errors
    /// When the state cannot be written as JSON.
    pub fn save(&mut self) -> Result<(), ToolError> {
        let value = self.value.as_ref().expect("the value leaves only when this is dropped");
        self.explicit_save =
            Some(ExplicitSave { text: encode(value)?, update_count: self.updates.len(), dirty: self.dirty });
        Ok(())
    }

    pub(crate) async fn check_out(cx: &CallContext) -> Result<Self, ToolError> {
        let wrong = |text| ToolError::operator_only(ErrorKind::Internal, text);
        let name = StateName::new(S::NAME).map_err(|error| wrong(error.to_string()))?;
        let thread = cx.thread().ok_or_else(|| wrong(format!("the state `{name}` was asked for without a thread")))?;
        let manager = &cx.services().state;
        let context = manager.context(&name, thread);
        let found = checkout::check_out(cx, &context).await?;
        let value = decode::<S>(found.business.as_ref())?;
        let LoadedContext { business, .. } = &found;
        let loaded = business.as_ref().filter(|row| row.schema == S::VERSION).map(|row| row.value.clone());
        let version = business.as_ref().map_or(0, |row| row.version.number);
        let home = Arc::new(TypedPendingState {
            phase: Mutex::new(StatePhase::InUse),
            loaded,
            auto_save: manager.auto_save(),
        });
        cx.checkouts().put(Checkout { context, loaded: found, pending: home.clone() })?;
        Ok(Self { value: Some(value), dirty: false, updates: Vec::new(), explicit_save: None, version, pending: home })
    }
}

/// What a row holds, or what a thread has that has nothing yet.
fn decode<S: ToolState>(row: Option<&Row>) -> Result<S, ToolError> {
    let Some(row) = row else { return Ok(S::default()) };
    let wrong = |error: serde_json::Error| unreadable::<S>(&error.to_string());
    if row.schema == S::VERSION {
        return serde_json::from_slice(&row.value).map_err(wrong);
    }
    S::migrate(row.schema, serde_json::from_slice(&row.value).map_err(wrong)?).map_err(|why| unreadable::<S>(&why))
}

fn unreadable<S: ToolState>(reason: &str) -> ToolError {
    ToolError::operator_only(
        ErrorKind::StateUnreadable,
        format!("the stored state `{}` cannot be read: {reason}", S::NAME),
    )
}

/// The text of a value. What could not be read again, such as something nested too deeply, must not be written.
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
        // Nothing has run yet, whatever went wrong here.
        Self::check_out(cx).await.map_err(|error| error.effect(Effect::None))
    }
}

impl<S: ToolState> TypedPendingState<S> {
    fn replace_phase(&self, parking: StatePhase<S>) -> StatePhase<S> {
        std::mem::replace(&mut *self.phase.lock().unwrap_or_else(PoisonError::into_inner), parking)
    }
}

impl<S> Drop for TypedPendingState<S> {
    /// The value is the author's, and may panic when it goes. Its call has an end by then, which must stay as it is.
    fn drop(&mut self) {
        let parked = self.phase.get_mut().unwrap_or_else(PoisonError::into_inner);
        let parking = std::mem::replace(parked, StatePhase::InUse);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(parking))) {
            std::mem::forget(panic);
        }
    }
}

impl<S: ToolState> PendingState for TypedPendingState<S> {
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError> {
        let StatePhase::Returned(left) = self.replace_phase(StatePhase::InUse) else {
            let text = "the tool returned while something it started still held the state";
            return Err(ToolError::operator_only(
                ErrorKind::ToolError,
                format!("{text} `{}`; it was not saved", S::NAME),
            ));
        };
        let ReturnedState { value, dirty: mut touched, updates: mut changes, explicit_save: saved } = left;
        let bytes = match saved {
            _ if self.auto_save && !touched && changes.is_empty() => return Ok(None),
            _ if self.auto_save => encode(&value)?,
            None => return Ok(None),
            Some(saved) => {
                changes.truncate(saved.update_count);
                touched = saved.dirty;
                saved.text
            }
        };
        if self.loaded.as_deref() == Some(&bytes) {
            return Ok(None);
        }
        if !touched {
            self.replace_phase(StatePhase::Serialized(changes));
        }
        Ok(Some(bytes))
    }

    fn layout(&self) -> u32 {
        S::VERSION
    }

    fn reapply(&self, now: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError> {
        let parked = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let StatePhase::Serialized(changes) = &*parked else { return Ok(None) };
        let mut value = decode::<S>(now)?;
        changes.iter().for_each(|change| change(&mut value));
        encode(&value).map(Some)
    }

    fn merge(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String> {
        let told = |error: ToolError| error.to_string();
        let mine = serde_json::from_slice(mine).map_err(|error| error.to_string())?;
        let merged = S::merge(decode(base).map_err(told)?, mine, decode(Some(theirs)).map_err(told)?)?;
        encode(&merged).map_err(told)
    }
}

impl<S: ToolState> Deref for State<S> {
    type Target = S;
    fn deref(&self) -> &S {
        self.value.as_ref().expect("the value leaves only when this is dropped")
    }
}

impl<S: ToolState> DerefMut for State<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.dirty = true;
        self.value.as_mut().expect("the value leaves only when this is dropped")
    }
}

impl<S: ToolState> Drop for State<S> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let (changes, saved) = (std::mem::take(&mut self.updates), self.explicit_save.take());
        self.pending.replace_phase(StatePhase::Returned(ReturnedState {
            value,
            dirty: self.dirty,
            updates: changes,
            explicit_save: saved,
        }));
    }
}
