//! Collects the pages of a server's list.
//!
//! In: the JSON text of each page. Out: the cursor of the next page, or the whole list: the text of each entry, unread. The number of
//! pages, entries and bytes is bounded, and a cursor that repeats ends the list; what was read by then counts.

use std::{collections::HashSet, fmt, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use toolhub_core::offload;

use crate::mcp::list_kind::ListKind;

/// Most pages of a list.
const MAX_PAGES: usize = 100;
/// Most bytes of all pages.
const MAX_BYTES: usize = 8 << 20;

/// Reads a list page by page.
#[derive(Debug)]
pub(crate) struct ListReader {
    kind: ListKind,
    max_entries: usize,
    pages: usize,
    cursors: HashSet<String>,
    list: RawList,
}

/// What to do after a page.
#[derive(Debug)]
pub(crate) enum Step {
    /// Fetch the page of this cursor and add it.
    Next(ListReader, String),
    /// The list is complete, or was cut.
    Done(RawList),
}

/// The entries of a list as the server sent them.
#[derive(Debug, Default)]
pub(crate) struct RawList {
    /// The JSON text of each entry.
    pub(crate) entries: Vec<Box<RawValue>>,
    /// The size of all pages.
    pub(crate) bytes: usize,
    /// How long the server says that the list is valid: the shortest of all pages.
    pub(crate) ttl: Option<Duration>,
    /// Why the list is not complete.
    pub(crate) cut: Option<Cut>,
}

/// Why a list was not read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cut {
    Pages,
    Bytes,
    Entries { kind: ListKind, max: usize },
    RepeatedCursor,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages => write!(f, "the list has more than {MAX_PAGES} pages; what is after them is left out"),
            Self::Bytes => write!(f, "the list has more than {} MiB; what is beyond is left out", MAX_BYTES >> 20),
            Self::Entries { kind, max } => {
                let member = kind.member();
                write!(f, "the list has more than {max} {member}, which is `max_tools`; the others are left out")
            }
            Self::RepeatedCursor => f.write_str("the server repeats a cursor; its list ends there"),
        }
    }
}

/// Why a page is not part of a list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The text is not such a list.
    #[error("the server's answer to `{}` is not valid: {reason}", .kind.method())]
    Malformed { kind: ListKind, reason: String },
    /// Already the first page is too large.
    #[error("the server's answer to `{}` has {bytes} bytes in one page, at most {MAX_BYTES} are read", .kind.method())]
    TooLarge {
        kind: ListKind,
        /// Its size.
        bytes: usize,
    },
}

impl ListReader {
    pub(crate) fn new(kind: ListKind, max_entries: usize) -> Self {
        Self { kind, max_entries, pages: 0, cursors: HashSet::new(), list: RawList::default() }
    }

    /// Adds a page, the first one or that of the last cursor; a large page is read on a blocking thread.
    ///
    /// # Errors
    /// When it is not a page of the list, or the first page alone is too large.
    pub(crate) async fn add(self, page: String) -> Result<Step, ListError> {
        offload::run(page.len(), move || self.add_page(&page)).await
    }

    pub(super) fn add_page(mut self, text: &str) -> Result<Step, ListError> {
        if self.list.bytes + text.len() > MAX_BYTES {
            return match self.pages {
                0 => Err(ListError::TooLarge { kind: self.kind, bytes: text.len() }),
                _ => Ok(self.cut(Cut::Bytes)),
            };
        }
        self.list.bytes += text.len();
        self.pages += 1;
        let kind = self.kind;
        let malformed = |error: serde_json::Error| ListError::Malformed { kind, reason: describe(&error) };
        let page: Page<'_> = serde_json::from_str(text).map_err(malformed)?;
        let entries = page.entries(kind).ok_or_else(|| {
            let reason = format!("it has no `{}`", kind.member());
            ListError::Malformed { kind, reason }
        })?;
        let room = Room { items: self.max_entries - self.list.entries.len() };
        let read = serde_json::Deserializer::from_str(entries.get()).deserialize_seq(room);
        let Items { items, left_out } = read.map_err(malformed)?;
        self.list.entries.extend(items);
        let ttl = page.ttl_ms.and_then(|ttl| serde_json::from_str(ttl.get()).ok()).map(Duration::from_millis);
        self.list.ttl = self.list.ttl.into_iter().chain(ttl).min();
        // Anything but a text is no cursor, and many servers end their list with an empty one.
        let cursor = page.next_cursor.and_then(|cursor| serde_json::from_str::<String>(cursor.get()).ok());
        let cursor = cursor.filter(|cursor| !cursor.is_empty());
        let is_full = self.list.entries.len() >= self.max_entries;
        Ok(match cursor {
            _ if left_out > 0 => self.cut_at_entries(),
            None => Step::Done(self.list),
            Some(_) if is_full => self.cut_at_entries(),
            Some(cursor) if !self.cursors.insert(cursor.clone()) => self.cut(Cut::RepeatedCursor),
            Some(_) if self.pages >= MAX_PAGES => self.cut(Cut::Pages),
            Some(cursor) => Step::Next(self, cursor),
        })
    }

    fn cut_at_entries(self) -> Step {
        let (kind, max) = (self.kind, self.max_entries);
        self.cut(Cut::Entries { kind, max })
    }

    fn cut(mut self, cut: Cut) -> Step {
        self.list.cut = Some(cut);
        Step::Done(self.list)
    }
}

/// The position is enough: the text of the error could quote the server.
fn describe(error: &serde_json::Error) -> String {
    let what = if error.is_data() { "it does not have the form of a list" } else { "it is not JSON" };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    prompts: Option<&'a RawValue>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_templates: Option<&'a RawValue>,
    #[serde(borrow)]
    next_cursor: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl_ms: Option<&'a RawValue>,
}

impl<'a> Page<'a> {
    fn entries(&self, kind: ListKind) -> Option<&'a RawValue> {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources => self.resources,
            ListKind::Templates => self.resource_templates,
        }
    }
}

/// Reads so many items of a list, and counts the others.
struct Room {
    items: usize,
}

struct Items {
    items: Vec<Box<RawValue>>,
    left_out: usize,
}

impl<'de> Visitor<'de> for Room {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
        let (mut items, mut left_out) = (Vec::new(), 0);
        while items.len() < self.items {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(Items { items, left_out }),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            left_out += 1;
        }
        Ok(Items { items, left_out })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn page(names: impl IntoIterator<Item = usize>, cursor: Value) -> String {
        let tools: Vec<Value> = names.into_iter().map(|name| json!({"name": name.to_string()})).collect();
        json!({"tools": tools, "nextCursor": cursor}).to_string()
    }

    /// Reads pages until the list ends; the pages are asked for by number.
    fn read(max_tools: usize, fetch: impl Fn(usize) -> String) -> (usize, RawList) {
        let mut reader = ListReader::new(ListKind::Tools, max_tools);
        for number in 0.. {
            match reader.add_page(&fetch(number)).unwrap() {
                Step::Next(next, _) => reader = next,
                Step::Done(list) => return (number + 1, list),
            }
        }
        unreachable!()
    }

    #[test]
    fn pages_are_read_to_the_end() {
        let (pages, list) =
            read(1_000, |number| page([number], if number < 3 { json!(number.to_string()) } else { json!(null) }));
        assert_eq!((pages, list.entries.len(), list.cut), (4, 4, None));
        let (pages, list) = read(1_000, |number| page([number], json!("")));
        assert_eq!((pages, list.entries.len(), list.cut), (1, 1, None), "an empty cursor is none");
        let (_, empty) =
            read(1_000, |_| json!({"tools": [], "_meta": {"a": [1]}, "resultType": "complete"}).to_string());
        assert_eq!((empty.entries.len(), empty.cut), (0, None));
    }

    #[test]
    fn a_list_without_end_is_cut_and_says_where() {
        let (pages, list) = read(1_000, |number| page([number], json!("same")));
        assert_eq!((pages, list.entries.len(), list.cut), (2, 2, Some(Cut::RepeatedCursor)));
        let (pages, list) = read(1_000, |number| page([number], json!(number.to_string())));
        assert_eq!((pages, list.entries.len(), list.cut), (100, 100, Some(Cut::Pages)));
        let (pages, list) = read(5, |number| page([number, 0], json!(number.to_string())));
        assert_eq!((pages, list.entries.len(), list.cut), (3, 5, Some(Cut::Entries { kind: ListKind::Tools, max: 5 })));
        let (pages, list) = read(2, |number| page([number, 0], json!(number.to_string())));
        assert_eq!((pages, list.entries.len(), list.cut), (1, 2, Some(Cut::Entries { kind: ListKind::Tools, max: 2 })));
        let (_, list) = read(2, |number| page([number, 0], json!(null)));
        assert_eq!(list.cut, None, "exactly as many tools as allowed");
        let long = || json!({"tools": [{"name": "x".repeat(3 << 20)}]});
        let (pages, list) = read(1_000, |number| {
            let mut page = long();
            page["nextCursor"] = json!(number.to_string());
            page.to_string()
        });
        assert_eq!((pages, list.entries.len(), list.cut), (3, 2, Some(Cut::Bytes)));
    }

    #[test]
    fn each_list_has_its_own_member() {
        let text =
            json!({"tools": [1], "prompts": [1, 2], "resources": [], "resourceTemplates": [1, 2, 3]}).to_string();
        let count = |kind| match ListReader::new(kind, 9).add_page(&text).unwrap() {
            Step::Done(list) => list.entries.len(),
            Step::Next(..) => unreachable!(),
        };
        let kinds = [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::Templates];
        assert_eq!(kinds.map(count), [1, 2, 0, 3]);
        let error = ListReader::new(ListKind::Templates, 9).add_page("{}").unwrap_err().to_string();
        assert!(error.contains("`resources/templates/list`") && error.contains("`resourceTemplates`"), "{error}");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let refused = |text: &str| ListReader::new(ListKind::Tools, 9).add_page(text).unwrap_err().to_string();
        assert!(refused("{\"tools\": [").contains("not JSON (line 1"));
        assert!(refused("[]").contains("form of a list"));
        assert!(refused("{}").contains("has no `tools`"));
        assert!(refused("{\"tools\": null}").contains("has no `tools`"));
        assert!(refused("{\"tools\": {}}").contains("form of a list"));
        assert!(refused("{\"tools\": [], \"tools\": []}").contains("form of a list"));
        assert!(refused(&format!("{{\"tools\": [\"{}\"]}}", "x".repeat(8 << 20))).contains("in one page"));
    }

    #[test]
    fn odd_members_are_ignored_and_the_shortest_validity_counts() {
        let (pages, list) = read(9, |_| json!({"tools": [1, null, []], "nextCursor": 7, "ttlMs": "x"}).to_string());
        assert_eq!((pages, list.entries.len(), list.ttl), (1, 3, None));
        let (_, list) = read(9, |number| match number {
            0 => json!({"tools": [], "nextCursor": "a", "ttlMs": 9_000}).to_string(),
            1 => json!({"tools": [], "nextCursor": "b", "ttlMs": 3_000}).to_string(),
            _ => json!({"tools": []}).to_string(),
        });
        assert_eq!(list.ttl, Some(Duration::from_secs(3)));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in r#"\{"tools":[\[\]{}",:a-z0-9 ]{0,60}|.{0,40}"#, max in 0_usize..3) {
            let _ = ListReader::new(ListKind::Tools, max).add_page(&text);
        }
    }
}
