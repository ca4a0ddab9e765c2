//! W3C trace context: parses and formats `traceparent` and `tracestate`.
//!
//! In: the two header values a caller sent. Out: the values to propagate, and the trace id for records and responses. Exporting spans is left
//! to others.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::ids::IdError;

/// A trace id: 32 hexadecimal digits, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct TraceId([u8; 16]);

crate::text_schema! { TraceId "the id of a trace" { "pattern": "^[0-9a-f]{32}$" } }

/// The trace context of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "TraceHeaders", into = "TraceHeaders")]
#[non_exhaustive]
pub struct TraceContext {
    /// The id of the trace.
    pub trace_id: TraceId,
    /// The id of the caller's span.
    pub parent_id: u64,
    /// The trace flags, such as `sampled`.
    pub flags: u8,
    /// The vendors' `tracestate`, propagated unchanged.
    pub state: Option<String>,
}

/// The serialized form: the two header values.
#[derive(Serialize, Deserialize)]
struct TraceHeaders {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tracestate: Option<String>,
}

const TRACEPARENT: &str = "traceparent";
const TRACEPARENT_FORMAT: &str =
    "expected `00-`, 32 digits of a trace id, `-`, 16 of a span id, `-` and 2 of flags, all lower-case hexadecimal";
/// A longer `tracestate` is not propagated.
const MAX_TRACESTATE_LENGTH: usize = 512;

impl TraceContext {
    /// Parses a `traceparent` of version 00 or later.
    ///
    /// # Errors
    /// When the value is malformed. By the standard, the call then starts a new trace.
    pub fn parse(traceparent: &str) -> Result<Self, IdError> {
        let malformed = || IdError::new(TRACEPARENT, TRACEPARENT_FORMAT, traceparent);
        let parts: Vec<&str> = traceparent.splitn(5, '-').collect();
        let [version, trace, parent, flags, ..] = parts[..] else { return Err(malformed()) };
        let version = parse_hex_byte(version).filter(|version| *version != 0xff).ok_or_else(malformed)?;
        if parts.len() > 4 && version == 0 {
            return Err(malformed());
        }
        let trace_id: TraceId = trace.parse().map_err(|_| malformed())?;
        let is_hex = parent.len() == 16 && parent.bytes().all(is_lower_hex_digit);
        let parent_id = is_hex.then(|| u64::from_str_radix(parent, 16).ok()).flatten();
        let parent_id = parent_id.filter(|id| *id != 0).ok_or_else(malformed)?;
        Ok(Self { trace_id, parent_id, flags: parse_hex_byte(flags).ok_or_else(malformed)?, state: None })
    }

    /// Adds the `tracestate` of the same request. An empty or too long one is dropped.
    #[must_use]
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Self {
        self.state = Some(tracestate.into()).filter(|state| !state.is_empty() && state.len() <= MAX_TRACESTATE_LENGTH);
        self
    }

    /// The `traceparent` header value to propagate.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

fn is_lower_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn parse_hex_byte(text: &str) -> Option<u8> {
    (text.len() == 2 && text.bytes().all(is_lower_hex_digit)).then(|| u8::from_str_radix(text, 16).ok()).flatten()
}

impl FromStr for TraceId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let malformed = || IdError::new("trace id", "expected 32 lower-case hexadecimal digits, not all zero", text);
        let number =
            (text.len() == 32 && text.bytes().all(is_lower_hex_digit)).then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().filter(|number| *number != 0).map(|number| Self(number.to_be_bytes())).ok_or_else(malformed)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<SmolStr> for TraceId {
    type Error = IdError;
    fn try_from(text: SmolStr) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<TraceId> for SmolStr {
    fn from(id: TraceId) -> Self {
        smol_str::format_smolstr!("{id}")
    }
}

impl TryFrom<TraceHeaders> for TraceContext {
    type Error = IdError;
    fn try_from(TraceHeaders { traceparent, tracestate }: TraceHeaders) -> Result<Self, IdError> {
        Ok(Self { state: tracestate, ..Self::parse(&traceparent)? })
    }
}

impl From<TraceContext> for TraceHeaders {
    fn from(trace: TraceContext) -> Self {
        Self { traceparent: trace.traceparent(), tracestate: trace.state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_as_the_standard_says_and_written_again() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = TraceContext::parse(text).unwrap().with_state("vendor=1");
        assert_eq!((trace.traceparent(), trace.state.as_deref()), (text.to_owned(), Some("vendor=1")));
        assert_eq!(trace.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let later = format!("cc{}-more", &text[2..]);
        assert_eq!(TraceContext::parse(&later).unwrap().traceparent(), text);
        let json = serde_json::to_value(&trace).unwrap();
        assert_eq!(serde_json::from_value::<TraceContext>(json).unwrap(), trace);
        for malformed in [
            "",
            "00",
            &text[..54],
            &format!("{text}-more"),
            &format!("ff{}", &text[2..]),
            &text.to_uppercase(),
            &text.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &text.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &text.replace('4', "g"),
        ] {
            assert!(TraceContext::parse(malformed).is_err(), "{malformed}");
        }
        assert_eq!(trace.with_state("x".repeat(513)).state, None);
    }
}
