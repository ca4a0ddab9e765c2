//! Text format of a file: readable JSON with a head, the rows, and checksums of both.
//!
//! In: a document. Out: its text; `read` decodes it. The head comes first and has its own checksum, so that opening a folder
//! reads only the beginning of each file. The checksums cover everything but their own line, so a text with a changed byte is
//! always rejected.

mod read;

use std::fmt::Write;

use crc32fast::Hasher;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Row, Table, Terms},
    clock::Timestamp,
};

pub(super) use read::{DecodeError, FileHead, decode, decode_head, decode_prefix};

use super::{
    doc::{Doc, NO_EXPIRY, TABLES},
    json_text::{self, ValueEncoding},
};

/// The format this version writes.
pub(super) const FORMAT_VERSION: u32 = 1;
const FORMAT_PREFIX: &str = "{\n  \"format\": \"toolhub-state ";
const CHECKSUM_FIELD: &str = "\",\n  \"checksum\": \"";
/// Where the head ends and the rows begin. JSON strings contain no raw line break, so it cannot occur inside a string.
const ROWS_START: &str = ",\n  \"states\": [";

/// The two parts of a file: the head and the rows.
pub(super) fn encode(doc: &Doc, compressed: bool) -> (String, String) {
    let head = encode_head(doc, compressed);
    let mut rows = String::with_capacity(doc.bytes());
    for (table, begin) in TABLES.into_iter().zip([ROWS_START, ",\n  \"versions\": [", ",\n  \"history\": ["]) {
        rows.push_str(begin);
        for (at, stored) in doc.rows(table).values().enumerate() {
            rows.push_str(if at == 0 { "\n    " } else { ",\n    " });
            rows.push_str(&stored.text);
        }
        rows.push_str(if doc.rows(table).is_empty() { "]" } else { "\n  ]" });
    }
    rows.push_str("\n}\n");
    let format = format!("{FORMAT_PREFIX}{FORMAT_VERSION}");
    let (first, all) = checksums(&format, &head, &rows);
    (format!("{format}{CHECKSUM_FIELD}{first:08x} {all:08x}{head}"), rows)
}

/// The head after the checksums.
fn encode_head(doc: &Doc, compressed: bool) -> String {
    let (context, head) = (&doc.context, doc.head());
    let mut out = format!("\",\n  \"write\": {}", doc.write_seq);
    let mut parts = context.partition_key.splitn(3, '/');
    let (tenant, kind, name) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let _ = write!(out, ",\n  \"tenant\": {}", json_text::quote(tenant.unwrap_or_default()));
    let field = if kind == Some("t") { "thread" } else { "shared" };
    let _ = write!(out, ",\n  \"{field}\": {}", json_text::quote(name));
    let _ = match context.id_prefix.strip_suffix('/') {
        Some(state) => write!(out, ",\n  \"state\": {}", json_text::quote(state)),
        None => write!(out, ",\n  \"row\": {}", json_text::quote(&context.id_prefix)),
    };
    let _ =
        write!(out, ",\n  \"codec\": \"json\",\n  \"compression\": \"{}\"", if compressed { "zstd" } else { "none" });
    if head.earliest_expiry != NO_EXPIRY {
        let _ = write!(out, ",\n  \"soonest\": {}", encode_time(head.earliest_expiry));
    }
    let list =
        |ids: &mut dyn Iterator<Item = &SmolStr>| ids.map(|id| json_text::quote(id)).collect::<Vec<_>>().join(", ");
    let _ = write!(out, ",\n  \"holds\": [{}]", list(&mut head.states.iter()));
    for (field, span) in ["snapshots", "entries"].into_iter().zip(&head.spans) {
        if let Some(span) = span {
            let _ = write!(out, ",\n  \"{field}\": [{}]", list(&mut [&span.0, &span.1].into_iter()));
        }
    }
    out
}

/// The checksums of the head and of the whole file.
fn checksums(format: &str, head: &str, rows: &str) -> (u32, u32) {
    let mut hasher = Hasher::new();
    hasher.update(format.as_bytes());
    hasher.update(head.as_bytes());
    let first = hasher.clone().finalize();
    hasher.update(rows.as_bytes());
    (first, hasher.finalize())
}

/// Encodes one row: a state on several lines, all others on one.
pub(super) fn encode_row(table: Table, id: &str, row: &Row, terms: &Terms) -> String {
    let (begin, between, end) = if table == Table::State { ("\n      ", "\n      ", "\n    ") } else { ("", " ", "") };
    let mut out = format!("{{{begin}\"id\": {},{between}\"version\": {}", json_text::quote(id), row.version.number);
    let _ = write!(out, ",{between}\"stamp\": \"{:016x}\",{between}\"schema\": {}", row.version.stamp, row.schema);
    let _ = write!(
        out,
        ",{between}\"created\": {},{between}\"updated\": {}",
        encode_time(row.created),
        encode_time(row.updated)
    );
    if let Some(expires) = row.expires {
        let _ = write!(out, ",{between}\"expires\": {}", encode_time(expires));
    }
    if !terms.is_empty() {
        let terms: Vec<String> = terms.iter().map(json_text::quote).collect();
        let _ = write!(out, ",{between}\"terms\": [{}]", terms.join(", "));
    }
    let _ = write!(out, ",{between}");
    match ValueEncoding::of(&row.value) {
        ValueEncoding::Json(json) if table == Table::State => {
            out.push_str("\"data\": ");
            json_text::pretty_print(&mut out, json, 6);
        }
        ValueEncoding::Json(json) => out.extend(["\"data\": ", json]),
        ValueEncoding::Text(text) => out.extend(["\"text\": ", &json_text::quote(text)]),
        ValueEncoding::Bytes(bytes) => out.extend(["\"hex\": \"", &json_text::to_hex(bytes), "\""]),
    }
    out.extend([end, "}"]);
    out
}

/// As a readable timestamp; as milliseconds if it is out of the calendar's range.
fn encode_time(at: Timestamp) -> String {
    let text = at.to_string();
    if text.parse::<Timestamp>().is_ok_and(|parsed| parsed == at) {
        json_text::quote(&text)
    } else {
        at.millis().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use toolhub_storage::backend::RowVersion;

    use super::{super::context::Context, *};

    fn test_row(value: &[u8], version: u64, expires: Option<i64>) -> Row {
        let [created, updated] = [5, i64::MAX].map(Timestamp::from_millis);
        let (version, expires) =
            (RowVersion { number: version, stamp: u64::MAX - version }, expires.map(Timestamp::from_millis));
        Row { version, schema: 1, value: value.into(), expires, created, updated }
    }

    fn doc() -> Doc {
        let partition_key: Arc<str> = "main/t/t1".into();
        let mut doc = Doc::empty(Context::of_row(&partition_key, "cart/business"));
        doc.write_seq = 7;
        doc.put(Table::State, "cart/business".into(), test_row(br#"{"tea":1,"list":[]}"#, 3, None), Terms::NONE);
        doc.put(Table::State, "cart/\u{1f375}\"\n".into(), test_row(b"null", 1, Some(1_000)), Terms::NONE);
        doc.put(Table::Versions, "cart/2".into(), test_row(b" 1", 1, None), Terms::new(["a=\"b\"", "c"]));
        doc.put(Table::History, "cart/b".into(), test_row(&[0xff], 1, Some(-5)), Terms::NONE);
        doc.put(
            Table::History,
            "cart/a".into(),
            test_row(br#"{"type":"note","what":",\n  \"states\": ["}"#, 1, None),
            Terms::NONE,
        );
        doc
    }

    fn full_text(doc: &Doc) -> String {
        let (head, rows) = encode(doc, false);
        head + &rows
    }

    #[test]
    fn a_file_is_json_that_people_can_read() {
        let text = full_text(&doc());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["tenant"], &json["thread"], &json["state"]), (&"main".into(), &"t1".into(), &"cart".into()));
        assert_eq!(json["states"][0]["data"]["tea"], 1);
        assert_eq!(json["states"][0]["version"], 3);
        assert_eq!(json["history"].as_array().unwrap().len(), 2);
        assert!(text.contains("\n      \"data\": {\n        \"tea\": 1,\n        \"list\": []\n      }\n"), "{text}");
    }

    #[test]
    fn a_file_is_read_back_to_the_last_byte() {
        let partition_key: Arc<str> = "main/h/a/b\u{0}".into();
        let mut loose = Doc::empty(Context::of_row(&partition_key, "loose"));
        loose.put(Table::State, "loose".into(), test_row(b"x", 1, None), Terms::NONE);
        for doc in [doc(), loose] {
            let text = full_text(&doc);
            let decoded = decode(text.as_bytes()).unwrap();
            assert_eq!((decoded.write_seq, &decoded.context), (doc.write_seq, &doc.context));
            for table in TABLES {
                let rows = |doc: &Doc| {
                    doc.rows(table)
                        .iter()
                        .map(|(id, k)| (id.clone(), k.row.clone(), k.terms.clone()))
                        .collect::<Vec<_>>()
                };
                assert_eq!(rows(&decoded), rows(&doc));
            }
            assert_eq!((decoded.bytes(), full_text(&decoded)), (doc.bytes(), text.clone()));
            let file_head = decode_prefix(text.as_bytes()).unwrap().unwrap();
            assert_eq!((file_head.context, file_head.head), (doc.context.clone(), doc.head()));
        }
    }

    #[test]
    fn no_other_byte_and_no_cut_is_taken_for_ours() {
        let text = full_text(&doc()).into_bytes();
        for at in 0..text.len() {
            for other in [text[at] ^ 1, text[at] ^ 0x20, 0, b'0', b' ', 0xff] {
                let mut mutant = text.clone();
                mutant[at] = other;
                assert!(other == text[at] || matches!(decode(&mutant), Err(DecodeError::Damaged(_))), "{at} {other}");
            }
            assert!(matches!(decode(&text[..at]), Err(DecodeError::Damaged(_))), "{at}");
        }
        assert!(decode(&[&text[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let (text, rows) = encode(&doc(), false);
        let head = &text[text.find(CHECKSUM_FIELD).unwrap() + CHECKSUM_FIELD.len() + 17..];
        let format = format!("{FORMAT_PREFIX}2");
        let (first, all) = checksums(&format, head, &rows);
        let later = format!("{format}{CHECKSUM_FIELD}{first:08x} {all:08x}{head}{rows}");
        assert_eq!(decode(later.as_bytes()).unwrap_err(), DecodeError::Newer(2));
    }
}
