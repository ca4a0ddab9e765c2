//! Differences between the nodes of a store: layouts of records, and configs.
//!
//! In: what each living node announces in its row. Out: which layouts this node writes; whether another one writes what this node cannot
//! read; and a warning for each difference. All records together have one generation of layouts, so that one number says what a node reads.
//! A release that changes the layout of a record raises the generation, reads the one before too, and writes that one as long as a
//! living node reads no newer one.

use std::collections::BTreeSet;

use smol_str::SmolStr;

use super::record::NodeRecord;

/// The layouts that every version reads.
pub(crate) const FIRST_GENERATION: u32 = 1;

/// The generation of the layouts of all records that this version writes, once every living node reads it. It reads the one before, too.
const RECORD_LAYOUTS: u32 = 1;

/// The same; in builds with debug assertions, a test of upgrades may let the program act as the next release.
pub(super) fn record_layouts() -> u32 {
    #[cfg(debug_assertions)]
    {
        use std::sync::LazyLock;
        static ACTS_AS_NEXT: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TOOLHUB_NEXT_LAYOUTS").is_some());
        if *ACTS_AS_NEXT {
            return RECORD_LAYOUTS + 1;
        }
    }
    RECORD_LAYOUTS
}

/// A living node that writes records which this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "node `{name}` (Toolhub {version}) of this store writes records in layouts of generation {written}, and this version reads them up to \
     generation {known}: start this node with that version",
    known = record_layouts()
)]
pub struct NewerNode {
    /// The name of the node.
    pub name: SmolStr,
    /// Its version of Toolhub.
    pub version: SmolStr,
    /// The generation of layouts that it writes.
    pub written: u32,
}

/// The generation to write, if this version has its own generation and the other living nodes read up to these.
pub(super) fn generation_to_write(own: u32, read_by_others: impl Iterator<Item = u32>) -> u32 {
    read_by_others.fold(own, u32::min).max(older(own))
}

/// The generation before this one, if there is one.
pub(super) fn older(own: u32) -> u32 {
    (own - 1).max(FIRST_GENERATION)
}

/// What was reported already. Each difference is reported once, and again after it was gone.
#[derive(Debug, Default)]
pub(super) struct Reported {
    configs_differ: bool,
    newer: BTreeSet<SmolStr>,
}

impl Reported {
    /// Logs new differences between this node and the other living ones.
    pub(super) fn report(&mut self, own_digest: Option<&SmolStr>, others: &[NodeRecord]) {
        let digests = others.iter().filter_map(|node| node.config_digest.as_ref());
        let digests: BTreeSet<_> = digests.chain(own_digest).collect();
        let configs_differ = digests.len() > 1;
        if configs_differ && !self.configs_differ {
            tracing::warn!("the nodes of this store have different configs; see `toolhub nodes`");
        }
        self.configs_differ = configs_differ;
        let newer: Vec<_> = others.iter().filter_map(newer_node).collect();
        for node in newer.iter().filter(|node| !self.newer.contains(&node.name)) {
            tracing::error!(error = %node, "this node cannot read what another one writes");
        }
        self.newer = newer.into_iter().map(|node| node.name).collect();
    }
}

/// The node, if it writes what this version cannot read.
pub(super) fn newer_node(node: &NodeRecord) -> Option<NewerNode> {
    let (name, version, written) = (node.name.clone(), node.version.clone(), node.layouts.written);
    (written > record_layouts()).then_some(NewerNode { name, version, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_layouts_are_written_until_every_living_node_reads_the_newer_ones() {
        let check = |others: &[u32], expected| {
            assert_eq!(generation_to_write(5, others.iter().copied()), expected, "{others:?}");
        };
        check(&[], 5);
        check(&[5, 6], 5);
        check(&[5, 4, 5], 4);
        // It has no layouts older than that: the other node must not start.
        check(&[3], 4);
    }
}
