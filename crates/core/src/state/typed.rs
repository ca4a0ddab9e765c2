//! `State<S>`: a tool's state in its own type.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    ToolState,
    desk::{Parked, Sheet},
};
use crate::{
    backend::{Expect, StoreError},
    call::Effect,
    context::CallContext,
    error::{ErrorKind, ToolError},
    handler::FromCall,
};

/// The state of a tool in the thread of the call.
///
/// Read and change it like the value it holds. When the tool returns `Ok`, a changed state is committed together with
/// the end of the call, provided nobody else changed it meanwhile; when it returns `Err`, the state stays as it was.
pub struct State<S: ToolState> {
    /// Present until this is dropped.
    value: Option<S>,
    touched: bool,
    version: u64,
    home: Arc<Home<S>>,
}

/// Where the value waits after the tool has let go of it.
struct Home<S> {
    parked: Mutex<Option<(S, bool)>>,
    /// What was loaded, to tell a change from a look through `&mut`.
    loaded: Option<Arc<[u8]>>,
}

impl<S: ToolState> State<S> {
    /// How often the state has been committed before; 0 when the thread has none yet.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) async fn take(cx: &CallContext) -> Result<Self, ToolError> {
        let thread = cx.thread().ok_or_else(|| {
            ToolError::hidden(ErrorKind::Internal, format!("the state `{}` was asked for without a thread", S::NAME))
        })?;
        let services = cx.services();
        let keys = [super::place(cx.tenant(), thread, S::NAME)];
        let found = services.store.load(&keys, services.clock.now()).await;
        let [key] = keys;
        let row = found
            .map_err(|error| match error {
                StoreError::Damaged { reason, .. } => unreadable::<S>(&reason),
                other => ToolError::hidden(ErrorKind::StoreUnavailable, other.to_string()),
            })?
            .pop()
            .flatten();
        let (value, seen, loaded) = match row {
            None => (S::default(), None, None),
            Some(row) if row.schema != S::VERSION => {
                return Err(unreadable::<S>(&format!("it has layout {}, this tool knows {}", row.schema, S::VERSION)));
            }
            Some(row) => match serde_json::from_slice(&row.value) {
                Ok(value) => (value, Some(row.seen), Some(row.value)),
                Err(error) => return Err(unreadable::<S>(&error.to_string())),
            },
        };
        let home = Arc::new(Home { parked: Mutex::new(None), loaded });
        let expect = seen.map_or(Expect::Absent, Expect::Same);
        cx.desk().put(Sheet { id: key.id, expect, schema: S::VERSION, parked: home.clone() })?;
        Ok(Self { value: Some(value), touched: false, version: seen.map_or(0, |seen| seen.version), home })
    }
}

fn unreadable<S: ToolState>(reason: &str) -> ToolError {
    ToolError::hidden(ErrorKind::StateUnreadable, format!("the stored state `{}` cannot be read: {reason}", S::NAME))
}

impl<S: ToolState> FromCall for State<S> {
    const STATE: Option<&'static str> = Some(S::NAME);

    async fn from_call(cx: &CallContext) -> Result<Self, ToolError> {
        // Nothing has run yet, whatever went wrong here.
        Self::take(cx).await.map_err(|error| error.effect(Effect::None))
    }
}

impl<S: ToolState> Parked for Home<S> {
    fn changed(&self) -> Result<Option<Vec<u8>>, ToolError> {
        let failed = |text| Err(ToolError::hidden(ErrorKind::ToolError, text));
        let parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((value, touched)) = parked else {
            let text = "the tool returned while something it started still held the state";
            return failed(format!("{text} `{}`; it was not saved", S::NAME));
        };
        if !touched {
            return Ok(None);
        }
        match serde_json::to_vec(&value) {
            Ok(bytes) if self.loaded.as_deref() == Some(&bytes) => Ok(None),
            // What could not be read again, such as something nested too deeply, must not be written.
            Ok(bytes) => match serde_json::from_slice::<S>(&bytes) {
                Ok(_) => Ok(Some(bytes)),
                Err(error) => failed(format!("the state `{}` could not be read back: {error}", S::NAME)),
            },
            Err(error) => failed(format!("the state `{}` cannot be written as JSON: {error}", S::NAME)),
        }
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
        self.touched = true;
        self.value.as_mut().expect("the value leaves only when this is dropped")
    }
}

impl<S: ToolState> Drop for State<S> {
    fn drop(&mut self) {
        let parked = self.value.take().map(|value| (value, self.touched));
        *self.home.parked.lock().unwrap_or_else(PoisonError::into_inner) = parked;
    }
}
