//! Maps rows to contexts, and contexts to file names.
//!
//! In: partitions and row ids, which may contain any character. Out: contexts, and file names of lower-case letters, digits
//! and a hash only, so that no name escapes its folder and no two names differ by case alone.

use std::sync::Arc;

use smol_str::SmolStr;
use toolhub_storage::backend::{Partition, PartitionKind};
use toolhub_types::{digest, ids::Tenant};

/// Suffix of an uncompressed file.
pub(super) const JSON_SUFFIX: &str = ".json";
/// Suffix of a compressed file.
pub(super) const ZSTD_SUFFIX: &str = ".json.zst";
/// Maximum number of characters of a thread or state in a file name.
const MAX_SHOWN_CHARS: usize = 24;

/// The unit of one file: the rows of one partition with a common id prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Context {
    /// The text of the partition.
    pub(super) partition_key: Arc<str>,
    /// The common prefix of the row ids, up to and including the first `/`. An id without `/` has a context of its own, with
    /// the whole id as prefix. So sorting contexts also sorts the ids of a partition.
    pub(super) id_prefix: SmolStr,
}

/// The text of a partition that can hold states; `None` for all others.
pub(super) fn partition_key(partition: &Partition) -> Option<Arc<str>> {
    matches!(partition.kind, PartitionKind::Thread(_) | PartitionKind::State(_)).then(|| partition.to_string().into())
}

/// Parses the text of a partition.
pub(super) fn parse_partition(partition_key: &str) -> Option<Partition> {
    partition_key.parse().ok().or_else(|| {
        // A shared state with an empty name is the only partition whose text `FromStr` rejects.
        let tenant = Tenant::new(partition_key.strip_suffix("/h/")?).ok()?;
        Some(Partition { tenant, kind: PartitionKind::State(SmolStr::default()) })
    })
}

/// The id prefix of the context of this row.
pub(super) fn id_prefix(id: &str) -> &str {
    id.find('/').map_or(id, |at| &id[..=at])
}

impl Context {
    /// The context of this row.
    pub(super) fn of_row(partition_key: &Arc<str>, id: &str) -> Self {
        Self { partition_key: partition_key.clone(), id_prefix: id_prefix(id).into() }
    }

    /// The folder and name of its file, without suffix.
    pub(super) fn stem(&self) -> String {
        let state = self.id_prefix.trim_end_matches('/');
        let mut hex = digest::concat_sha256_hex([self.partition_key.as_bytes(), &[0, 2], self.id_prefix.as_bytes()]);
        hex.truncate(32);
        let name = self.partition_key.splitn(3, '/').nth(2).unwrap_or_default();
        format!("{}/{}-{}-{hex}", &hex[..2], sanitize(name), sanitize(state))
    }

    /// Its file, relative to the folder `contexts`.
    pub(super) fn file(&self, compressed: bool) -> String {
        let mut file = self.stem();
        file.push_str(if compressed { ZSTD_SUFFIX } else { JSON_SUFFIX });
        file
    }
}

/// The file-name-safe beginning of a text, to make files recognizable.
fn sanitize(text: &str) -> String {
    let sanitize_char = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    text.chars().take(MAX_SHOWN_CHARS).map(sanitize_char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(partition_key: &str, id: &str) -> String {
        Context::of_row(&partition_key.into(), id).file(false)
    }

    #[test]
    fn a_file_name_shows_its_thread_and_state_and_holds_nothing_dangerous() {
        assert!(file("main/t/T:1", "cart/business")[2..].starts_with("/t_1-cart-"), "{}", file("main/t/T:1", "cart/x"));
        let odd = ["..", "../../etc/passwd", "ü\u{10ffff}", "a\0b", "CON", "", "/", ".hidden", &"x".repeat(10_000)];
        for (partition_key, id) in
            odd.iter().flat_map(|odd| [(format!("main/h/{odd}"), "a/b"), ("main/t/t".into(), *odd)])
        {
            let file = file(&partition_key, id);
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
