//! Streaming decompression of response bodies.
//!
//! In: the chunks of a body. Out: the decompressed bytes, or `TooLarge`: a decompression bomb is stopped as soon as its output exceeds
//! the limit.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::{
    HeaderMap,
    header::{CONTENT_ENCODING, HeaderValue},
};

use super::{request_error::RequestError, send::ReadLimit};

/// The value of `Accept-Encoding`.
pub(crate) const ACCEPTED_ENCODINGS: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// Collects a body, decompressed.
pub(crate) struct Decompressor {
    coding: Coding,
    limit: ReadLimit,
}

enum Coding {
    Identity(LimitedBuffer),
    Gzip(Box<MultiGzDecoder<LimitedBuffer>>),
    Zlib(Box<ZlibDecoder<LimitedBuffer>>),
    Deflate(Box<DeflateDecoder<LimitedBuffer>>),
    /// `deflate` may be zlib or raw deflate; the first byte decides.
    UnknownDeflate(LimitedBuffer),
}

/// A buffer with a maximum size.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    exceeded: bool,
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let capacity = self.limit - self.bytes.len();
        if bytes.len() > capacity {
            self.bytes.extend_from_slice(&bytes[..capacity]);
            self.exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decompressor {
    pub(crate) fn new(headers: &HeaderMap, limit: ReadLimit) -> Result<Self, RequestError> {
        let buffer = LimitedBuffer { bytes: Vec::new(), limit: limit.decompressed, exceeded: false };
        let coding = headers.get(CONTENT_ENCODING).map_or("identity", |value| value.to_str().unwrap_or("?").trim());
        let coding = match coding.to_ascii_lowercase().as_str() {
            "" | "identity" => Coding::Identity(LimitedBuffer { limit: limit.bytes, ..buffer }),
            "gzip" | "x-gzip" => Coding::Gzip(Box::new(MultiGzDecoder::new(buffer))),
            "deflate" => Coding::UnknownDeflate(buffer),
            other => {
                return Err(RequestError::Broken(format!(
                    "the response has the content encoding `{other}`, which was not requested"
                )));
            }
        };
        Ok(Self { coding, limit })
    }

    /// Adds the next chunk. Returns `false` if no more is needed, because the limit truncates the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        if let (Coding::UnknownDeflate(_), Some(first)) = (&self.coding, bytes.first()) {
            // The lower half of the first byte of a zlib stream is its method, 8; raw deflate hardly ever begins like that.
            let zlib = first & 0x0f == 8;
            let Coding::UnknownDeflate(buffer) =
                std::mem::replace(&mut self.coding, Coding::Identity(LimitedBuffer::empty()))
            else {
                return Ok(true);
            };
            self.coding = match zlib {
                true => Coding::Zlib(Box::new(ZlibDecoder::new(buffer))),
                false => Coding::Deflate(Box::new(DeflateDecoder::new(buffer))),
            };
        }
        let written = match &mut self.coding {
            Coding::Identity(buffer) | Coding::UnknownDeflate(buffer) => buffer.write_all(bytes),
            Coding::Gzip(decoder) => decoder.write_all(bytes),
            Coding::Zlib(decoder) => decoder.write_all(bytes),
            Coding::Deflate(decoder) => decoder.write_all(bytes),
        };
        match written {
            Ok(()) => Ok(true),
            Err(_) if self.buffer().exceeded && self.limit.truncate => Ok(false),
            Err(_) if self.buffer().exceeded => {
                Err(RequestError::TooLarge { limit: self.limit.decompressed, decompressed: true })
            }
            Err(_) if self.limit.truncate => Ok(false),
            Err(error) => Err(corrupt_body(&error)),
        }
    }

    /// The complete body.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, RequestError> {
        let finished = match &mut self.coding {
            Coding::Identity(_) | Coding::UnknownDeflate(_) => Ok(()),
            _ if self.limit.truncate => Ok(()),
            Coding::Gzip(decoder) => decoder.try_finish(),
            Coding::Zlib(decoder) => decoder.try_finish(),
            Coding::Deflate(decoder) => decoder.try_finish(),
        };
        if self.buffer().exceeded && !self.limit.truncate {
            return Err(RequestError::TooLarge { limit: self.limit.decompressed, decompressed: true });
        }
        finished.map_err(|error| corrupt_body(&error))?;
        Ok(std::mem::take(&mut self.buffer_mut().bytes))
    }

    fn buffer(&self) -> &LimitedBuffer {
        match &self.coding {
            Coding::Identity(buffer) | Coding::UnknownDeflate(buffer) => buffer,
            Coding::Gzip(decoder) => decoder.get_ref(),
            Coding::Zlib(decoder) => decoder.get_ref(),
            Coding::Deflate(decoder) => decoder.get_ref(),
        }
    }

    fn buffer_mut(&mut self) -> &mut LimitedBuffer {
        match &mut self.coding {
            Coding::Identity(buffer) | Coding::UnknownDeflate(buffer) => buffer,
            Coding::Gzip(decoder) => decoder.get_mut(),
            Coding::Zlib(decoder) => decoder.get_mut(),
            Coding::Deflate(decoder) => decoder.get_mut(),
        }
    }
}

impl LimitedBuffer {
    fn empty() -> Self {
        Self { bytes: Vec::new(), limit: 0, exceeded: false }
    }
}

fn corrupt_body(error: &io::Error) -> RequestError {
    RequestError::Broken(format!("the response cannot be decompressed: {error}"))
}
