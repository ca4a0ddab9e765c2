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

use super::{send::ReadLimit, trouble::Trouble};

/// What we say that we can unpack.
pub(crate) const UNDERSTOOD: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// A body in the making.
pub(crate) struct Unpacker {
    coding: Coding,
    most: ReadLimit,
}

enum Coding {
    Plain(Bounded),
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Zlib(Box<ZlibDecoder<Bounded>>),
    Deflate(Box<DeflateDecoder<Bounded>>),
    /// Deflate is sent in two forms; the first byte tells.
    Unsure(Bounded),
}

/// Bytes, up to a number of them.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.most - self.bytes.len();
        if bytes.len() > room {
            self.bytes.extend_from_slice(&bytes[..room]);
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Unpacker {
    pub(crate) fn new(headers: &HeaderMap, most: ReadLimit) -> Result<Self, Trouble> {
        let bounded = Bounded { bytes: Vec::new(), most: most.unpacked, full: false };
        let coding = headers.get(CONTENT_ENCODING).map_or("identity", |value| value.to_str().unwrap_or("?").trim());
        let coding = match coding.to_ascii_lowercase().as_str() {
            "" | "identity" => Coding::Plain(Bounded { most: most.bytes, ..bounded }),
            "gzip" | "x-gzip" => Coding::Gzip(Box::new(MultiGzDecoder::new(bounded))),
            "deflate" => Coding::Unsure(bounded),
            other => {
                return Err(Trouble::Broken(format!("the answer is packed as `{other}`, which was not asked for")));
            }
        };
        Ok(Self { coding, most })
    }

    /// Takes the next piece. `false`: that is enough.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, Trouble> {
        if let (Coding::Unsure(_), Some(first)) = (&self.coding, bytes.first()) {
            // A zlib stream begins with its method, 8, in the lower half of the first byte; raw deflate hardly ever does.
            let zlib = first & 0x0f == 8;
            let Coding::Unsure(bounded) = std::mem::replace(&mut self.coding, Coding::Plain(Bounded::nothing())) else {
                return Ok(true);
            };
            self.coding = match zlib {
                true => Coding::Zlib(Box::new(ZlibDecoder::new(bounded))),
                false => Coding::Deflate(Box::new(DeflateDecoder::new(bounded))),
            };
        }
        let written = match &mut self.coding {
            Coding::Plain(to) | Coding::Unsure(to) => to.write_all(bytes),
            Coding::Gzip(to) => to.write_all(bytes),
            Coding::Zlib(to) => to.write_all(bytes),
            Coding::Deflate(to) => to.write_all(bytes),
        };
        match written {
            Ok(()) => Ok(true),
            Err(_) if self.bounded().full && self.most.cut => Ok(false),
            Err(_) if self.bounded().full => Err(Trouble::TooLarge { most: self.most.unpacked, unpacked: true }),
            Err(_) if self.most.cut => Ok(false),
            Err(error) => Err(damaged(&error)),
        }
    }

    /// All of it.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Trouble> {
        let finished = match &mut self.coding {
            Coding::Plain(_) | Coding::Unsure(_) => Ok(()),
            _ if self.most.cut => Ok(()),
            Coding::Gzip(from) => from.try_finish(),
            Coding::Zlib(from) => from.try_finish(),
            Coding::Deflate(from) => from.try_finish(),
        };
        if self.bounded().full && !self.most.cut {
            return Err(Trouble::TooLarge { most: self.most.unpacked, unpacked: true });
        }
        finished.map_err(|error| damaged(&error))?;
        Ok(std::mem::take(&mut self.bounded_mut().bytes))
    }

    fn bounded(&self) -> &Bounded {
        match &self.coding {
            Coding::Plain(bounded) | Coding::Unsure(bounded) => bounded,
            Coding::Gzip(from) => from.get_ref(),
            Coding::Zlib(from) => from.get_ref(),
            Coding::Deflate(from) => from.get_ref(),
        }
    }

    fn bounded_mut(&mut self) -> &mut Bounded {
        match &mut self.coding {
            Coding::Plain(bounded) | Coding::Unsure(bounded) => bounded,
            Coding::Gzip(from) => from.get_mut(),
            Coding::Zlib(from) => from.get_mut(),
            Coding::Deflate(from) => from.get_mut(),
        }
    }
}

impl Bounded {
    fn nothing() -> Self {
        Self { bytes: Vec::new(), most: 0, full: false }
    }
}

fn damaged(error: &io::Error) -> Trouble {
    Trouble::Broken(format!("the answer cannot be unpacked: {error}"))
}
