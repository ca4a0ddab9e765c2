//! What a room outside the core keeps once for a hub, however often it is opened there.
//!
//! In: a type. Out: the one value of it that belongs to the hub. The hub knows nothing about it, and lets go of it with itself.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::ToolHub;

/// The values, by their types.
#[derive(Default)]
pub(crate) struct Beside(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl ToolHub {
    /// The one value of this type that belongs to this hub, made when it is first asked for. For rooms beside the hub that may be
    /// opened more than once on it and must know of each other. A value that holds the hub would keep both alive for ever.
    #[must_use]
    pub fn beside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.engine.beside.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        value.downcast().unwrap_or_else(|_| unreachable!("a value lies under its own type"))
    }
}
