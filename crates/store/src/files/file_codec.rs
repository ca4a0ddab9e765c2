//! Encodes documents to file bytes, plain or compressed, and back.
//!
//! In: a document or bytes. Out: the other. A compressed file has two zstd frames, one for the head and one for the rows, so
//! that the head can be read alone; `zstd -d` restores the whole text.

use std::io::{self, Read};

use super::{
    doc::Doc,
    text_format::{self, DecodeError, FileHead},
};

/// zstd's default level: a good ratio at low cost.
const LEVEL: i32 = 3;
/// No context is this large; a larger file was not written by this code (decompression bomb).
const MAX_DECOMPRESSED_BYTES: u64 = 1 << 30;
const DECOMPRESS_FAILED: DecodeError = DecodeError::Damaged("it cannot be decompressed");

/// Encodes a document.
pub(super) fn encode(doc: &Doc, compressed: bool) -> io::Result<Vec<u8>> {
    let (head, rows) = text_format::encode(doc, compressed);
    if !compressed {
        return Ok((head + &rows).into_bytes());
    }
    let mut content = zstd::bulk::compress(head.as_bytes(), LEVEL)?;
    content.extend(zstd::bulk::compress(rows.as_bytes(), LEVEL)?);
    Ok(content)
}

/// Decodes a whole file.
pub(super) fn decode(content: &[u8], compressed: bool) -> Result<Doc, DecodeError> {
    if !compressed {
        return text_format::decode(content);
    }
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(content).map_err(|_| DECOMPRESS_FAILED)?;
    decoder.take(MAX_DECOMPRESSED_BYTES).read_to_end(&mut text).map_err(|_| DECOMPRESS_FAILED)?;
    text_format::decode(&text)
}

/// Decodes the head from the first bytes of a file; `None` if more bytes are needed.
pub(super) fn decode_prefix(content: &[u8], compressed: bool) -> Option<Result<FileHead, DecodeError>> {
    if !compressed {
        return text_format::decode_prefix(content);
    }
    let mut head = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(content).ok()?;
    decoder.single_frame().take(MAX_DECOMPRESSED_BYTES).read_to_end(&mut head).ok()?;
    Some(text_format::decode_head(&head))
}
