//! Which toolhub this is: version, revision and compiler, as `build.rs` found them.

use toolhub::server::Build;

/// What was built.
pub(crate) fn current() -> Build {
    let [version, revision, rustc] = [env!("CARGO_PKG_VERSION"), env!("TOOLHUB_REVISION"), env!("TOOLHUB_RUSTC")];
    Build { version: version.into(), revision: revision.into(), rustc: rustc.into() }
}
