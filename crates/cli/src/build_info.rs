//! Version, revision and compiler of this build, as `build.rs` embedded them.

use toolhub::server::BuildInfo;

/// The build of this binary.
pub(crate) fn current() -> BuildInfo {
    let [version, revision, rustc] = [env!("CARGO_PKG_VERSION"), env!("TOOLHUB_REVISION"), env!("TOOLHUB_RUSTC")];
    BuildInfo { version: version.into(), revision: revision.into(), rustc: rustc.into() }
}
