//! Reads what `text` writes.
//!
//! In: bytes from a disk, which may hold anything. Out: what the beginning of a file tells, or all of it; or why it
//! cannot be read. Nothing is parsed before its checksum was found to be right.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Row, RowVersion},
    clock::Timestamp,
};
use toolhub_types::ids::{Tenant, ThreadId};

use super::{
    super::{
        context::{Context, Part},
        doc::{Doc, DocHead, NO_EXPIRY, TABLES},
        json_text,
    },
    CHECKSUM_FIELD, FORMAT_PREFIX, FORMAT_VERSION, ROWS_START, checksums,
};

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum DecodeError {
    /// It is not what was written, or not ours.
    Damaged(&'static str),
    /// It is ours, and of a later format.
    Newer(u32),
}

/// What the beginning of a file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct FileHead {
    pub(in super::super) context: Context,
    pub(in super::super) write_seq: u64,
    pub(in super::super) fence: u64,
    pub(in super::super) head: DocHead,
}

const UNEXPECTED_FORM: DecodeError = DecodeError::Damaged("it has another form than expected");

/// What the beginning of a file tells; `None` where more of it is needed to tell.
pub(in super::super) fn decode_prefix(content: &[u8]) -> Option<Result<FileHead, DecodeError>> {
    let end = content.windows(ROWS_START.len()).position(|here| here == ROWS_START.as_bytes())?;
    Some(decode_head(&content[..end]))
}

/// What the head alone tells.
pub(in super::super) fn decode_head(content: &[u8]) -> Result<FileHead, DecodeError> {
    let parts = split_head(content)?;
    if checksums(parts.format, parts.head, "").0 != parts.head_checksum {
        return Err(DecodeError::Damaged("its beginning does not have its checksum"));
    }
    if parts.format_version != FORMAT_VERSION {
        Err(DecodeError::Newer(parts.format_version))
    } else {
        parse_head(parts.head)
    }
}

/// All of a file.
pub(in super::super) fn decode(content: &[u8]) -> Result<Doc, DecodeError> {
    let cut = || DecodeError::Damaged("it is cut short, or not ours");
    let begin = decode_prefix(content).ok_or_else(cut)??;
    let text = std::str::from_utf8(content).map_err(|_| DecodeError::Damaged("it is no text"))?;
    let end = text.find(ROWS_START).ok_or_else(cut)?;
    let (parts, rows) = (split_head(&content[..end])?, &text[end..]);
    if checksums(parts.format, parts.head, rows).1 != parts.file_checksum {
        return Err(DecodeError::Damaged("it does not have its checksum"));
    }
    let all = format!("{{\"begin\": 0{rows}");
    let rows: RowsText<'_> = serde_json::from_str(&all).map_err(|_| UNEXPECTED_FORM)?;
    let FileHead { context, write_seq: write, fence, head } = begin;
    let mut doc = Doc::empty(context);
    (doc.write_seq, doc.fence) = (write, fence);
    for (table, rows) in TABLES.into_iter().zip([rows.states, rows.versions, rows.history]) {
        for row in rows {
            let (id, row) = row.into_row().ok_or(UNEXPECTED_FORM)?;
            if Context::of_row(&doc.context.partition_key, &id) != doc.context {
                return Err(DecodeError::Damaged("it holds a row of another context"));
            }
            doc.put(table, id, row);
        }
    }
    if doc.head() == head { Ok(doc) } else { Err(DecodeError::Damaged("its head tells of other rows")) }
}

struct HeadParts<'a> {
    /// Up to the number of the format.
    format: &'a str,
    format_version: u32,
    head_checksum: u32,
    file_checksum: u32,
    /// Behind the checksums.
    head: &'a str,
}

fn split_head(content: &[u8]) -> Result<HeadParts<'_>, DecodeError> {
    let split = || {
        let text = std::str::from_utf8(content).ok()?;
        let (format, rest) = text.split_once(CHECKSUM_FIELD)?;
        let number = format.strip_prefix(FORMAT_PREFIX)?.parse().ok()?;
        let (first, all) = (rest.get(..8)?, rest.get(8..17)?.strip_prefix(' ')?);
        let [first, all] = [first, all].map(|digits| u32::from_str_radix(digits, 16).ok());
        let (first, all) = (first?, all?);
        // In one way only, so that no other text has these checksums.
        (rest[..17] == format!("{first:08x} {all:08x}")).then_some(())?;
        Some(HeadParts { format, format_version: number, head_checksum: first, file_checksum: all, head: &rest[17..] })
    };
    split().ok_or(DecodeError::Damaged("it does not begin like one of our files"))
}

fn parse_head(head: &str) -> Result<FileHead, DecodeError> {
    let all = format!("{{\"checksum\": \"{head}}}");
    let head: HeadText = serde_json::from_str(&all).map_err(|_| UNEXPECTED_FORM)?;
    head.into_file_head().ok_or(UNEXPECTED_FORM)
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
    fn into_file_head(self) -> Option<FileHead> {
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
        let soonest = self.soonest.map_or(NO_EXPIRY, Timestamp::from);
        let head =
            DocHead { states: self.holds.into(), spans: [self.snapshots, self.entries], earliest_expiry: soonest };
        let context = Context { partition_key: home.into(), part };
        Some(FileHead { context, write_seq: self.write, fence: self.fence.unwrap_or(0), head })
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
            (Some(data), None, None) => json_text::compact(data.get()).into_bytes(),
            (None, Some(text), None) => text.into_bytes(),
            (None, None, Some(digits)) => json_text::from_hex(&digits)?,
            _ => return None,
        };
        let row = Row {
            version: RowVersion { number: self.version, stamp: u64::from_str_radix(&self.stamp, 16).ok()? },
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
    Text(Timestamp),
    Millis(i64),
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        match time {
            Time::Text(at) => at,
            Time::Millis(millis) => Self::from_millis(millis),
        }
    }
}
