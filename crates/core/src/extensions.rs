//! Type map with one value per type: resources shared with tools, and per-hub singletons of other crates.
//!
//! In: a value, or a type with a default. Out: the value of that type, in an `Arc`.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::Arc,
};

use arc_swap::ArcSwap;

type Values = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// A map from types to values. Reads take no lock, because tools read on every call.
#[derive(Default)]
pub(crate) struct Extensions(ArcSwap<Values>);

impl Extensions {
    /// Adds a value; replaces another one of its type.
    pub(crate) fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let value = Arc::new(value);
        self.0.rcu(|values| {
            let mut values = Values::clone(values);
            values.insert(TypeId::of::<T>(), value.clone());
            values
        });
    }

    /// The value of this type, if there is one.
    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.load().get(&TypeId::of::<T>()).cloned().and_then(|value| value.downcast().ok())
    }

    /// The value of this type, created with `Default` if there is none.
    pub(crate) fn get_or_default<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        if let Some(value) = self.get() {
            return value;
        }
        let value = Arc::new(T::default());
        // If two callers race, the value of the first one stays.
        self.0.rcu(|values| {
            let mut values = Values::clone(values);
            values.entry(TypeId::of::<T>()).or_insert_with(|| value.clone());
            values
        });
        self.get().unwrap_or(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type_and_a_default_does_not_replace_it() {
        let values = Extensions::default();
        assert_eq!(values.get::<u32>(), None);
        values.insert(7_u32);
        values.insert("seven");
        assert_eq!((values.get::<u32>().as_deref(), values.get::<&str>().as_deref()), (Some(&7), Some(&"seven")));
        assert_eq!(*values.get_or_default::<u32>(), 7);
        let text = values.get_or_default::<String>();
        assert!(Arc::ptr_eq(&text, &values.get_or_default::<String>()));
        values.insert(8_u32);
        assert_eq!(*values.get_or_default::<u32>(), 8);
    }
}
