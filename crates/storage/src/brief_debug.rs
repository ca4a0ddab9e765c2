//! How values that hold locks and stores look in a debug print: who they are, not all they hold.

/// `brief_debug!("Name" Type);`
macro_rules! brief_debug {
    ($name:literal $type:ty) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use brief_debug;
