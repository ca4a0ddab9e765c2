//! Ranges of a sorted set whose members are ordered by their bytes.
//!
//! In: prefix, cursor and direction of a scan. Out: bounds in the syntax of `ZRANGE … BYLEX`. Pure functions.

use toolhub_storage::backend::{Cursor, Scan};

/// Between an id and its partition. No id contains it, and it sorts before every other character.
pub(super) const SEPARATOR: u8 = 0;

/// A range of members that begin with the same head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LexRange {
    lower: Bound,
    /// `None`: no upper bound.
    upper: Option<Bound>,
    descending: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    member: Vec<u8>,
    is_inclusive: bool,
}

impl Bound {
    fn text(&self) -> Vec<u8> {
        [if self.is_inclusive { b"[" } else { b"(" }, self.member.as_slice()].concat()
    }
}

impl LexRange {
    /// All members that begin with `head` and the prefix of the scan.
    fn of_prefix(head: &[u8], scan: &Scan) -> Self {
        let first = [head, scan.prefix.as_bytes()].concat();
        let upper = successor(&first).map(|member| Bound { member, is_inclusive: false });
        Self { lower: Bound { member: first, is_inclusive: true }, upper, descending: scan.descending }
    }

    /// The members `head id NUL partition` of a tenant that a scan wants. `rest` is the part of a partition after its tenant.
    pub(super) fn of_tenant(head: &[u8], scan: &Scan, tenant: &str) -> Self {
        let mut range = Self::of_prefix(head, scan);
        if let Some(Cursor(last)) = &scan.after {
            let (partition, begin) = (last.partition.to_string(), format!("{tenant}/"));
            let rest = match partition.strip_prefix(tenant).filter(|_| partition.starts_with(&begin)) {
                Some(rest) => rest.as_bytes().to_vec(),
                // All partitions of this tenant come after that of the cursor, or all before.
                None if begin > partition => Vec::new(),
                None => vec![0xff],
            };
            range.continue_after([head, last.id.as_bytes(), &[SEPARATOR], &rest].concat());
        }
        range
    }

    /// The members `head id` of one partition that a scan wants.
    pub(super) fn of_partition(head: &[u8], scan: &Scan, partition: &str) -> Self {
        let mut range = Self::of_prefix(head, scan);
        if let Some(Cursor(last)) = &scan.after {
            let cursor_partition = last.partition.to_string();
            let member = [head, last.id.as_bytes()].concat();
            // The row with the id of the cursor is wanted too if its partition comes later.
            let is_inclusive =
                if scan.descending { *partition < *cursor_partition } else { *partition > *cursor_partition };
            range.narrow(Bound { member, is_inclusive });
        }
        range
    }

    /// Continues after this member.
    pub(super) fn continue_after(&mut self, member: Vec<u8>) {
        self.narrow(Bound { member, is_inclusive: false });
    }

    fn narrow(&mut self, bound: Bound) {
        if self.descending {
            if self.upper.as_ref().is_none_or(|upper| bound.member < upper.member) {
                self.upper = Some(bound);
            }
        } else if bound.member >= self.lower.member {
            self.lower = bound;
        }
    }

    /// Lower and upper bound.
    pub(super) fn bounds(&self) -> [Vec<u8>; 2] {
        [self.lower.text(), self.upper.as_ref().map_or_else(|| b"+".to_vec(), Bound::text)]
    }

    /// The bounds in the order in which `ZRANGE` wants them.
    pub(super) fn ordered_bounds(&self) -> [Vec<u8>; 2] {
        let [lower, upper] = self.bounds();
        if self.descending { [upper, lower] } else { [lower, upper] }
    }
}

/// The first text after all texts that begin with these bytes; `None` if there is none. No text contains the byte 255.
fn successor(bytes: &[u8]) -> Option<Vec<u8>> {
    let (last, begin) = bytes.split_last()?;
    Some([begin, &[last + 1]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_storage::backend::{RowKey, Scope, Table};
    use toolhub_types::ids::{Tenant, ThreadId};

    fn scan(descending: bool, after: Option<&str>) -> Scan {
        let partition =
            toolhub_storage::backend::Partition::for_thread(Tenant::new("m").unwrap(), ThreadId::new("t").unwrap());
        let after = after.map(|id| Cursor(RowKey { partition, table: Table::Calls, id: id.into() }));
        Scan { descending, after, ..Scan::new(Table::Calls, Scope::All).prefix("k") }
    }

    #[track_caller]
    fn check(range: &LexRange, lower: &[u8], upper: &[u8]) {
        assert_eq!(range.bounds(), [lower.to_vec(), upper.to_vec()]);
    }

    #[test]
    fn a_cursor_narrows_the_range_of_each_tenant_in_its_own_way() {
        check(&LexRange::of_tenant(b"", &scan(false, None), "m"), b"[k", b"(l");
        check(&LexRange::of_tenant(b"x\n", &scan(false, Some("k1")), "m"), b"(x\nk1\0/t/t", b"(x\nl");
        check(&LexRange::of_tenant(b"", &scan(false, Some("k1")), "a"), b"(k1\0\xff", b"(l");
        check(&LexRange::of_tenant(b"", &scan(false, Some("k1")), "z"), b"(k1\0", b"(l");
        check(&LexRange::of_tenant(b"", &scan(true, Some("k1")), "z"), b"[k", b"(k1\0");
        check(&LexRange::of_tenant(b"", &scan(true, Some("k1")), "m"), b"[k", b"(k1\0/t/t");
        check(&LexRange::of_tenant(b"", &scan(false, Some("a")), "m"), b"[k", b"(l");
        check(&LexRange::of_tenant(b"", &scan(true, Some("z")), "m"), b"[k", b"(l");
        check(&LexRange::of_partition(b"calls/", &scan(false, Some("k1")), "m/t/t"), b"(calls/k1", b"(calls/l");
        check(&LexRange::of_partition(b"calls/", &scan(false, Some("k1")), "z/t/t"), b"[calls/k1", b"(calls/l");
        check(&LexRange::of_partition(b"calls/", &scan(true, Some("k1")), "a/t/t"), b"[calls/k", b"[calls/k1");
    }
}
