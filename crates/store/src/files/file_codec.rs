//! The bytes of a file: a text as it is, or compressed.
//!
//! In: the two parts of a text. Out: bytes, and back. A compressed file is two frames, one for the head and one for the
//! rows, so that the head can be read alone; `zstd -d` makes one text of both.

use std::io::{self, Read};

use super::{
    doc::Doc,
    text_format::{self, DecodeError, FileHead},
};

/// A good deal smaller, and quick.
const LEVEL: i32 = 3;
/// No context is this large. What claims to be was not written by us.
const MAX_DECOMPRESSED_BYTES: u64 = 1 << 30;
const DECOMPRESS_FAILED: DecodeError = DecodeError::Damaged("it cannot be decompressed");

/// The bytes of a document's file.
pub(super) fn encode(doc: &Doc, packed: bool) -> io::Result<Vec<u8>> {
    let (head, rows) = text_format::encode(doc, packed);
    if !packed {
        return Ok((head + &rows).into_bytes());
    }
    let mut content = zstd::bulk::compress(head.as_bytes(), LEVEL)?;
    content.extend(zstd::bulk::compress(rows.as_bytes(), LEVEL)?);
    Ok(content)
}

/// All of a file.
pub(super) fn decode(content: &[u8], packed: bool) -> Result<Doc, DecodeError> {
    if !packed {
        return text_format::decode(content);
    }
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(content).map_err(|_| DECOMPRESS_FAILED)?;
    decoder.take(MAX_DECOMPRESSED_BYTES).read_to_end(&mut text).map_err(|_| DECOMPRESS_FAILED)?;
    text_format::decode(&text)
}

/// What the first bytes of a file tell; `None` where more of it is needed to tell.
pub(super) fn decode_prefix(content: &[u8], packed: bool) -> Option<Result<FileHead, DecodeError>> {
    if !packed {
        return text_format::decode_prefix(content);
    }
    let mut head = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(content).ok()?;
    decoder.single_frame().take(MAX_DECOMPRESSED_BYTES).read_to_end(&mut head).ok()?;
    Some(text_format::decode_head(&head))
}
