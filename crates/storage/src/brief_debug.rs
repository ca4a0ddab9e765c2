//! `Debug` that prints only the type name, for types that hold locks or stores.

/// Usage: `brief_debug!("Name" Type);`
#[doc(hidden)]
#[macro_export]
macro_rules! brief_debug {
    ($name:literal $type:ty) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    };
}
