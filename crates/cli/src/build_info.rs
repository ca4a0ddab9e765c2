//! Version, revision and compiler of this build, as `build.rs` embedded them.

use toolhub::server::Build;

/// The build of this binary.
pub(crate) fn current() -> Build {
    let [version, revision, rustc] = [env!("CARGO_PKG_VERSION"), env!("TOOLHUB_REVISION"), env!("TOOLHUB_RUSTC")];
    Build { version: version.into(), revision: revision.into(), rustc: rustc.into() }
}
