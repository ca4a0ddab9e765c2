//! Reads what `text` writes.
//!
//! In: bytes from a disk, which may hold anything. Out: what the beginning of a file tells, or all of it; or why it
//! cannot be read. Nothing is parsed before its checksum was found to be right.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Row, Seen},
    clock::Timestamp,
};
use toolhub_types::ids::{Tenant, ThreadId};

use super::{
    super::{
        doc::{Doc, Head, NEVER, TABLES},
        name::{Context, Part},
        plain,
    },
    BEGIN, CHECKSUM, FORMAT, ROWS, checksums,
};

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Unreadable {
    /// It is not what was written, or not ours.
    Damaged(&'static str),
    /// It is ours, and of a later format.
    Newer(u32),
}

/// What the beginning of a file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Beginning {
    pub(in super::super) context: Context,
    pub(in super::super) write: u64,
    pub(in super::super) fence: u64,
    pub(in super::super) head: Head,
}

const OTHER_FORM: Unreadable = Unreadable::Damaged("it has another form than expected");

/// What the beginning of a file tells; `None` where more of it is needed to tell.
pub(in super::super) fn beginning(content: &[u8]) -> Option<Result<Beginning, Unreadable>> {
    let end = content.windows(ROWS.len()).position(|here| here == ROWS.as_bytes())?;
    Some(head(&content[..end]))
}

/// What the head alone tells.
pub(in super::super) fn head(content: &[u8]) -> Result<Beginning, Unreadable> {
    let parts = parts(content)?;
    if checksums(parts.format, parts.head, "").0 != parts.first {
        return Err(Unreadable::Damaged("its beginning does not have its checksum"));
    }
    if parts.number != FORMAT { Err(Unreadable::Newer(parts.number)) } else { told(parts.head) }
}

/// All of a file.
pub(in super::super) fn read(content: &[u8]) -> Result<Doc, Unreadable> {
    let cut = || Unreadable::Damaged("it is cut short, or not ours");
    let begin = beginning(content).ok_or_else(cut)??;
    let text = std::str::from_utf8(content).map_err(|_| Unreadable::Damaged("it is no text"))?;
    let end = text.find(ROWS).ok_or_else(cut)?;
    let (parts, rows) = (parts(&content[..end])?, &text[end..]);
    if checksums(parts.format, parts.head, rows).1 != parts.all {
        return Err(Unreadable::Damaged("it does not have its checksum"));
    }
    let all = format!("{{\"begin\": 0{rows}");
    let rows: RowsText<'_> = serde_json::from_str(&all).map_err(|_| OTHER_FORM)?;
    let Beginning { context, write, fence, head } = begin;
    let mut doc = Doc::empty(context);
    (doc.write, doc.fence) = (write, fence);
    for (table, rows) in TABLES.into_iter().zip([rows.states, rows.versions, rows.history]) {
        for row in rows {
            let (id, row) = row.into_row().ok_or(OTHER_FORM)?;
            if Context::of(&doc.context.home, &id) != doc.context {
                return Err(Unreadable::Damaged("it holds a row of another context"));
            }
            doc.put(table, id, row);
        }
    }
    if doc.head() == head { Ok(doc) } else { Err(Unreadable::Damaged("its head tells of other rows")) }
}

struct Parts<'a> {
    /// Up to the number of the format.
    format: &'a str,
    number: u32,
    first: u32,
    all: u32,
    /// Behind the checksums.
    head: &'a str,
}

fn parts(content: &[u8]) -> Result<Parts<'_>, Unreadable> {
    let split = || {
        let text = std::str::from_utf8(content).ok()?;
        let (format, rest) = text.split_once(CHECKSUM)?;
        let number = format.strip_prefix(BEGIN)?.parse().ok()?;
        let (first, all) = (rest.get(..8)?, rest.get(8..17)?.strip_prefix(' ')?);
        let [first, all] = [first, all].map(|digits| u32::from_str_radix(digits, 16).ok());
        let (first, all) = (first?, all?);
        // In one way only, so that no other text has these checksums.
        (rest[..17] == format!("{first:08x} {all:08x}")).then_some(())?;
        Some(Parts { format, number, first, all, head: &rest[17..] })
    };
    split().ok_or(Unreadable::Damaged("it does not begin like one of our files"))
}

fn told(head: &str) -> Result<Beginning, Unreadable> {
    let all = format!("{{\"checksum\": \"{head}}}");
    let head: HeadText = serde_json::from_str(&all).map_err(|_| OTHER_FORM)?;
    head.into_beginning().ok_or(OTHER_FORM)
}

#[derive(Deserialize)]
struct HeadText {
    write: u64,
    tenant: SmolStr,
    thread: Option<SmolStr>,
    shared: Option<SmolStr>,
    fence: Option<u64>,
    state: Option<SmolStr>,
    row: Option<SmolStr>,
    soonest: Option<Time>,
    holds: Vec<SmolStr>,
    snapshots: Option<Box<(SmolStr, SmolStr)>>,
    entries: Option<Box<(SmolStr, SmolStr)>>,
}

impl HeadText {
    fn into_beginning(self) -> Option<Beginning> {
        let tenant = Tenant::new(self.tenant).ok()?;
        let home = match (self.thread, self.shared) {
            (Some(thread), None) => format!("{tenant}/t/{}", ThreadId::new(thread).ok()?),
            (None, Some(state)) => format!("{tenant}/h/{state}"),
            _ => return None,
        };
        let part = match (self.fence, self.state, self.row) {
            (Some(_), None, None) => Part::Fence,
            (None, Some(state), None) if !state.contains('/') => Part::Rows(smol_str::format_smolstr!("{state}/")),
            (None, None, Some(row)) if !row.contains('/') => Part::Rows(row),
            _ => return None,
        };
        let soonest = self.soonest.map_or(NEVER, Timestamp::from);
        let head = Head { states: self.holds.into(), spans: [self.snapshots, self.entries], soonest };
        let context = Context { home: home.into(), part };
        Some(Beginning { context, write: self.write, fence: self.fence.unwrap_or(0), head })
    }
}

#[derive(Deserialize)]
struct RowsText<'a> {
    #[serde(borrow)]
    states: Vec<RowText<'a>>,
    #[serde(borrow)]
    versions: Vec<RowText<'a>>,
    #[serde(borrow)]
    history: Vec<RowText<'a>>,
}

#[derive(Deserialize)]
struct RowText<'a> {
    id: SmolStr,
    version: u64,
    stamp: SmolStr,
    schema: u32,
    created: Time,
    updated: Time,
    expires: Option<Time>,
    /// `null` is a value like any other.
    #[serde(borrow, default, deserialize_with = "there")]
    data: Option<&'a RawValue>,
    text: Option<String>,
    hex: Option<String>,
}

fn there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl RowText<'_> {
    fn into_row(self) -> Option<(SmolStr, Row)> {
        let value = match (self.data, self.text, self.hex) {
            (Some(data), None, None) => plain::compact(data.get()).into_bytes(),
            (None, Some(text), None) => text.into_bytes(),
            (None, None, Some(digits)) => plain::bytes(&digits)?,
            _ => return None,
        };
        let row = Row {
            seen: Seen { version: self.version, stamp: u64::from_str_radix(&self.stamp, 16).ok()? },
            schema: self.schema,
            value: value.into(),
            expires: self.expires.map(Timestamp::from),
            created: self.created.into(),
            updated: self.updated.into(),
        };
        Some((self.id, row))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Told(Timestamp),
    Millis(i64),
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        match time {
            Time::Told(at) => at,
            Time::Millis(millis) => Self::from_millis(millis),
        }
    }
}
