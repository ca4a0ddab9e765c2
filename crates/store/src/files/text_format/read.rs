//! Decodes the text format.
//!
//! In: bytes from a disk, possibly damaged. Out: the head of a file, or the whole document; or an error. Nothing is parsed
//! before its checksum was verified.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Row, RowVersion, Terms},
    clock::Timestamp,
};
use toolhub_types::ids::{Tenant, ThreadId};

use super::{
    super::{
        context::Context,
        doc::{Doc, DocHead, NO_EXPIRY, TABLES},
        json_text,
    },
    CHECKSUM_FIELD, FORMAT_PREFIX, FORMAT_VERSION, ROWS_START, checksums,
};

/// Why a file cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum DecodeError {
    /// It is damaged or not a store file.
    Damaged(&'static str),
    /// It is a store file of a later format.
    Newer(u32),
}

/// The decoded head of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct FileHead {
    pub(in super::super) context: Context,
    pub(in super::super) write_seq: u64,
    pub(in super::super) head: DocHead,
}

const UNEXPECTED_FORM: DecodeError = DecodeError::Damaged("it does not have the expected structure");

/// Decodes the head from the first bytes of a file; `None` if more bytes are needed.
pub(in super::super) fn decode_prefix(content: &[u8]) -> Option<Result<FileHead, DecodeError>> {
    let end = content.windows(ROWS_START.len()).position(|window| window == ROWS_START.as_bytes())?;
    Some(decode_head(&content[..end]))
}

/// Decodes the head alone.
pub(in super::super) fn decode_head(content: &[u8]) -> Result<FileHead, DecodeError> {
    let parts = split_head(content)?;
    if checksums(parts.format, parts.head, "").0 != parts.head_checksum {
        return Err(DecodeError::Damaged("checksum mismatch of its head"));
    }
    if parts.format_version != FORMAT_VERSION {
        Err(DecodeError::Newer(parts.format_version))
    } else {
        parse_head(parts.head)
    }
}

/// Decodes a whole file.
pub(in super::super) fn decode(content: &[u8]) -> Result<Doc, DecodeError> {
    let truncated = || DecodeError::Damaged("it is truncated or not a store file");
    let file_head = decode_prefix(content).ok_or_else(truncated)??;
    let text = std::str::from_utf8(content).map_err(|_| DecodeError::Damaged("it is not UTF-8 text"))?;
    let end = text.find(ROWS_START).ok_or_else(truncated)?;
    let (parts, rows) = (split_head(&content[..end])?, &text[end..]);
    if checksums(parts.format, parts.head, rows).1 != parts.file_checksum {
        return Err(DecodeError::Damaged("checksum mismatch"));
    }
    let all = format!("{{\"begin\": 0{rows}");
    let rows: RowsText<'_> = serde_json::from_str(&all).map_err(|_| UNEXPECTED_FORM)?;
    let FileHead { context, write_seq, head } = file_head;
    let mut doc = Doc::empty(context);
    doc.write_seq = write_seq;
    for (table, rows) in TABLES.into_iter().zip([rows.states, rows.versions, rows.history]) {
        for row in rows {
            let (id, row, terms) = row.into_row().ok_or(UNEXPECTED_FORM)?;
            if Context::of_row(&doc.context.partition_key, &id) != doc.context {
                return Err(DecodeError::Damaged("it contains a row of another context"));
            }
            doc.put(table, id, row, terms);
        }
    }
    if doc.head() == head { Ok(doc) } else { Err(DecodeError::Damaged("its head does not match its rows")) }
}

struct HeadParts<'a> {
    /// The beginning, up to and including the format version.
    format: &'a str,
    format_version: u32,
    head_checksum: u32,
    file_checksum: u32,
    /// The rest after the checksums.
    head: &'a str,
}

fn split_head(content: &[u8]) -> Result<HeadParts<'_>, DecodeError> {
    let split = || {
        let text = std::str::from_utf8(content).ok()?;
        let (format, rest) = text.split_once(CHECKSUM_FIELD)?;
        let format_version = format.strip_prefix(FORMAT_PREFIX)?.parse().ok()?;
        let (first, all) = (rest.get(..8)?, rest.get(8..17)?.strip_prefix(' ')?);
        let [first, all] = [first, all].map(|digits| u32::from_str_radix(digits, 16).ok());
        let (first, all) = (first?, all?);
        // Only the canonical notation, so that no other text is accepted with the same checksums.
        (rest[..17] == format!("{first:08x} {all:08x}")).then_some(())?;
        Some(HeadParts { format, format_version, head_checksum: first, file_checksum: all, head: &rest[17..] })
    };
    split().ok_or(DecodeError::Damaged("it does not begin like a store file"))
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
        let partition_key = match (self.thread, self.shared) {
            (Some(thread), None) => format!("{tenant}/t/{}", ThreadId::new(thread).ok()?),
            (None, Some(state)) => format!("{tenant}/h/{state}"),
            _ => return None,
        };
        let id_prefix = match (self.state, self.row) {
            (Some(state), None) if !state.contains('/') => smol_str::format_smolstr!("{state}/"),
            (None, Some(row)) if !row.contains('/') => row,
            _ => return None,
        };
        let earliest_expiry = self.soonest.map_or(NO_EXPIRY, Timestamp::from);
        let head = DocHead { states: self.holds.into(), spans: [self.snapshots, self.entries], earliest_expiry };
        let context = Context { partition_key: partition_key.into(), id_prefix };
        Some(FileHead { context, write_seq: self.write, head })
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
    #[serde(default)]
    terms: Vec<SmolStr>,
    /// Distinguishes `null`, which is a value, from a missing field.
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    data: Option<&'a RawValue>,
    text: Option<String>,
    hex: Option<String>,
}

fn deserialize_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl RowText<'_> {
    fn into_row(self) -> Option<(SmolStr, Row, Terms)> {
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
        Some((self.id, row, Terms::new(self.terms)))
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
