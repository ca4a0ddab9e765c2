//! How many rounds a test runs: few in `./test`, many in `./test --soak`.

/// Whether this is a soak run (`TOOLHUB_SOAK` is set).
#[must_use]
pub fn is_soak() -> bool {
    std::env::var_os("TOOLHUB_SOAK").is_some()
}

/// The first value in a normal run, the second in a soak run.
pub fn soak<T>(normal: T, long: T) -> T {
    if is_soak() { long } else { normal }
}
