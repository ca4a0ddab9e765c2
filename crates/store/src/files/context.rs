//! Which context a row belongs to, and which file a context has.
//!
//! In: partitions and row ids, which may hold anything. Out: contexts, and file names that hold lower-case letters,
//! digits and a hash only, so that no name leaves its folder and none differs from another by case alone.

use std::{fmt::Write, sync::Arc};

use sha2::{Digest, Sha256};
use smol_str::SmolStr;
use toolhub_storage::backend::{Partition, PartitionKind};
use toolhub_types::ids::Tenant;

/// How a plain file ends.
pub(super) const JSON_SUFFIX: &str = ".json";
/// How a compressed file ends.
pub(super) const ZSTD_SUFFIX: &str = ".json.zst";
/// How many characters of a thread or a state a file name shows.
const MAX_SHOWN_CHARS: usize = 24;

/// What lies in one file: the rows of one partition whose ids begin alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Context {
    /// The text of the partition.
    pub(super) partition_key: Arc<str>,
    pub(super) part: Part,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The highest fence that was seen. No rows.
    Fence,
    /// How the ids of the rows begin: up to and with the first `/`. An id without one is alone, and begins with all of
    /// itself. So the ids of one partition are in order where the contexts are.
    Rows(SmolStr),
}

/// The text of a partition that may hold states; `None` for all others.
pub(super) fn partition_key(partition: &Partition) -> Option<Arc<str>> {
    matches!(partition.kind, PartitionKind::Thread(_) | PartitionKind::State(_)).then(|| partition.to_string().into())
}

/// The partition of a text.
pub(super) fn parse_partition(home: &str) -> Option<Partition> {
    home.parse().ok().or_else(|| {
        // A shared state without a name is the one partition whose text is not read back.
        let tenant = Tenant::new(home.strip_suffix("/h/")?).ok()?;
        Some(Partition { tenant, kind: PartitionKind::State(SmolStr::default()) })
    })
}

/// How the ids of the context begin that has this row.
pub(super) fn id_prefix(id: &str) -> &str {
    id.find('/').map_or(id, |at| &id[..=at])
}

impl Context {
    /// The context that has this row.
    pub(super) fn of_row(home: &Arc<str>, id: &str) -> Self {
        Self { partition_key: home.clone(), part: Part::Rows(id_prefix(id).into()) }
    }

    pub(super) fn fence(home: &Arc<str>) -> Self {
        Self { partition_key: home.clone(), part: Part::Fence }
    }

    /// The folder and the name of its file, without the ending.
    pub(super) fn stem(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.partition_key.as_bytes());
        let state = match &self.part {
            Part::Fence => {
                hash.update([0, 1]);
                "fence"
            }
            Part::Rows(beginning) => {
                hash.update([0, 2]);
                hash.update(beginning.as_bytes());
                beginning.trim_end_matches('/')
            }
        };
        let hash = hash.finalize();
        let mut hex = String::with_capacity(32);
        for byte in &hash[..16] {
            let _ = write!(hex, "{byte:02x}");
        }
        let place = self.partition_key.splitn(3, '/').nth(2).unwrap_or_default();
        format!("{}/{}-{}-{hex}", &hex[..2], sanitize(place), sanitize(state))
    }

    /// Its file, below the folder of all of them.
    pub(super) fn file(&self, packed: bool) -> String {
        let mut file = self.stem();
        file.push_str(if packed { ZSTD_SUFFIX } else { JSON_SUFFIX });
        file
    }
}

/// As much of a text as is safe in a file name, for people who look for a file.
fn sanitize(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    text.chars().take(MAX_SHOWN_CHARS).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(home: &str, id: &str) -> String {
        Context::of_row(&home.into(), id).file(false)
    }

    #[test]
    fn a_file_name_shows_its_thread_and_state_and_holds_nothing_dangerous() {
        assert!(file("main/t/T:1", "cart/business")[2..].starts_with("/t_1-cart-"), "{}", file("main/t/T:1", "cart/x"));
        let odd = ["..", "../../etc/passwd", "ü\u{10ffff}", "a\0b", "CON", "", "/", ".hidden", &"x".repeat(10_000)];
        for (home, id) in odd.iter().flat_map(|odd| [(format!("main/h/{odd}"), "a/b"), ("main/t/t".into(), *odd)]) {
            let file = file(&home, id);
            let (folder, name) = file.split_once('/').unwrap();
            assert_eq!(folder.len(), 2, "{file}");
            assert!(name.len() < 100, "{file}");
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
            assert!(name.strip_suffix(JSON_SUFFIX).unwrap().chars().all(fits), "{file}");
        }
    }

    #[test]
    fn contexts_that_differ_have_files_that_differ_by_more_than_case() {
        let pairs = [
            (("main/t/a", "cart/x"), ("main/t/A", "cart/x")),
            (("main/t/a", "cart/x"), ("main/t/a", "cart")),
            (("main/t/a", "cart/x"), ("main/t/a", "Cart/x")),
            (("main/t/a", "cart/x"), ("main/h/a", "cart/x")),
            (("main/t/a", "cart/x"), ("other/t/a", "cart/x")),
        ];
        for (one, other) in pairs {
            assert_ne!(file(one.0, one.1).to_lowercase(), file(other.0, other.1).to_lowercase());
        }
        assert_eq!(file("main/t/a", "cart/business"), file("main/t/a", "cart/0001"), "one context, one file");
        let home = "main/t/a".into();
        assert_ne!(Context::fence(&home).file(false), Context::of_row(&home, "").file(false));
    }

    #[test]
    fn ids_are_in_order_where_their_contexts_are() {
        let mut ids = ["a", "a!/x", "a-b/y", "a/", "a/b", "a/c/d", "ab", "ab/a", "", "/", "a.b/z", "~/session"];
        ids.sort_unstable();
        let contexts: Vec<Context> = ids.iter().map(|id| Context::of_row(&"main/t/t".into(), id)).collect();
        assert!(contexts.is_sorted(), "{contexts:?}");
    }

    #[test]
    fn a_partition_is_read_back_from_its_text() {
        for text in ["main/t/t1", "main/h/cart", "main/h/", "main/h/a/b"] {
            assert_eq!(parse_partition(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_partition("main/x/y"), None);
    }
}
