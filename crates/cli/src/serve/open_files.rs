//! How many connections the limit of open files (`ulimit -n`) leaves room for.
//!
//! In: the number of connections in the config. Out: the same number, or a smaller one. Stores, tools and requests to
//! services need files too: if connections used them all, calls would fail.

use rustix::process::{Resource, getrlimit};

/// The number of connections the server may have.
pub(super) fn limit_connections(configured: usize) -> usize {
    let open_files = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    let allowed = open_files.map_or(configured, |limit| configured.min(connections_within(limit)));
    if allowed < configured {
        tracing::warn!(
            allowed,
            max_connections = configured,
            open_files,
            "the limit of open files allows fewer connections than `server.max_connections`; raise it (ulimit -n)"
        );
    }
    allowed
}

/// A quarter of the files is for everything else, but no more than 512.
fn connections_within(open_files: usize) -> usize {
    open_files.saturating_sub((open_files / 4).min(512)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_stores_and_tools() {
        assert_eq!([256, 1_024, 20_000].map(connections_within), [192, 768, 19_488]);
        assert_eq!(connections_within(0), 1);
        assert_eq!(limit_connections(1), 1);
    }
}
