//! Unpacks answers while they are read.
//!
//! In: the pieces of a body. Out: what they hold, or the word that it is too much: a small body that unpacks into a huge one is
//! stopped as soon as it is larger than it may be.

use std::io::{self, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::{
    HeaderMap,
    header::{CONTENT_ENCODING, HeaderValue},
};

use super::{request_error::RequestError, send::ReadLimit};

/// What we say that we can unpack.
pub(crate) const ACCEPTED_ENCODINGS: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// A body in the making.
pub(crate) struct Decompressor {
    coding: Coding,
    limit: ReadLimit,
}

enum Coding {
    Identity(LimitedBuffer),
    Gzip(Box<MultiGzDecoder<LimitedBuffer>>),
    Zlib(Box<ZlibDecoder<LimitedBuffer>>),
    Deflate(Box<DeflateDecoder<LimitedBuffer>>),
    /// Deflate is sent in two forms; the first byte tells.
    UnknownDeflate(LimitedBuffer),
}

/// Bytes, up to a number of them.
struct LimitedBuffer {
    bytes: Vec<u8>,
    limit: usize,
    exceeded: bool,
}

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit - self.bytes.len();
        if bytes.len() > room {
            self.bytes.extend_from_slice(&bytes[..room]);
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
    pub(crate) fn new(headers: &HeaderMap, most: ReadLimit) -> Result<Self, RequestError> {
        let bounded = LimitedBuffer { bytes: Vec::new(), limit: most.decompressed, exceeded: false };
        let coding = headers.get(CONTENT_ENCODING).map_or("identity", |value| value.to_str().unwrap_or("?").trim());
        let coding = match coding.to_ascii_lowercase().as_str() {
            "" | "identity" => Coding::Identity(LimitedBuffer { limit: most.bytes, ..bounded }),
            "gzip" | "x-gzip" => Coding::Gzip(Box::new(MultiGzDecoder::new(bounded))),
            "deflate" => Coding::UnknownDeflate(bounded),
            other => {
                return Err(RequestError::Broken(format!(
                    "the answer is packed as `{other}`, which was not asked for"
                )));
            }
        };
        Ok(Self { coding, limit: most })
    }

    /// Takes the next piece. `false`: that is enough.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        if let (Coding::UnknownDeflate(_), Some(first)) = (&self.coding, bytes.first()) {
            // A zlib stream begins with its method, 8, in the lower half of the first byte; raw deflate hardly ever does.
            let zlib = first & 0x0f == 8;
            let Coding::UnknownDeflate(bounded) =
                std::mem::replace(&mut self.coding, Coding::Identity(LimitedBuffer::empty()))
            else {
                return Ok(true);
            };
            self.coding = match zlib {
                true => Coding::Zlib(Box::new(ZlibDecoder::new(bounded))),
                false => Coding::Deflate(Box::new(DeflateDecoder::new(bounded))),
            };
        }
        let written = match &mut self.coding {
            Coding::Identity(to) | Coding::UnknownDeflate(to) => to.write_all(bytes),
            Coding::Gzip(to) => to.write_all(bytes),
            Coding::Zlib(to) => to.write_all(bytes),
            Coding::Deflate(to) => to.write_all(bytes),
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

    /// All of it.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, RequestError> {
        let finished = match &mut self.coding {
            Coding::Identity(_) | Coding::UnknownDeflate(_) => Ok(()),
            _ if self.limit.truncate => Ok(()),
            Coding::Gzip(from) => from.try_finish(),
            Coding::Zlib(from) => from.try_finish(),
            Coding::Deflate(from) => from.try_finish(),
        };
        if self.buffer().exceeded && !self.limit.truncate {
            return Err(RequestError::TooLarge { limit: self.limit.decompressed, decompressed: true });
        }
        finished.map_err(|error| corrupt_body(&error))?;
        Ok(std::mem::take(&mut self.buffer_mut().bytes))
    }

    fn buffer(&self) -> &LimitedBuffer {
        match &self.coding {
            Coding::Identity(bounded) | Coding::UnknownDeflate(bounded) => bounded,
            Coding::Gzip(from) => from.get_ref(),
            Coding::Zlib(from) => from.get_ref(),
            Coding::Deflate(from) => from.get_ref(),
        }
    }

    fn buffer_mut(&mut self) -> &mut LimitedBuffer {
        match &mut self.coding {
            Coding::Identity(bounded) | Coding::UnknownDeflate(bounded) => bounded,
            Coding::Gzip(from) => from.get_mut(),
            Coding::Zlib(from) => from.get_mut(),
            Coding::Deflate(from) => from.get_mut(),
        }
    }
}

impl LimitedBuffer {
    fn empty() -> Self {
        Self { bytes: Vec::new(), limit: 0, exceeded: false }
    }
}

fn corrupt_body(error: &io::Error) -> RequestError {
    RequestError::Broken(format!("the answer cannot be unpacked: {error}"))
}
