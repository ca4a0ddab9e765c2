//! Values kept by their type, one of each: what a hub's owner shares with tools, and what other crates keep once per hub.
//!
//! In: a value, or a type with a default. Out: the one value of that type, shared.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Values = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// At most one value of each type.
#[derive(Default)]
pub(crate) struct Extensions(Mutex<Values>);

impl Extensions {
    /// Adds a value; it takes the place of another one of its type.
    pub(crate) fn add<T: Send + Sync + 'static>(&self, value: T) {
        self.values().insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of this type, if there is one.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.values().get(&TypeId::of::<T>()).cloned().and_then(|value| value.downcast().ok())
    }

    /// The value of this type, made where there is none.
    pub(crate) fn get_or_default<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let value = self.values().entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        value.downcast().unwrap_or_else(|_| unreachable!("a value is stored under its own type"))
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
