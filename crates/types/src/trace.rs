//! Where a call stands in a trace that began elsewhere, in the words of the W3C's `traceparent` and `tracestate`.
//!
//! In: the two texts as a caller sends them. Out: the same, to be handed on; and the trace's id, for records and answers. Nothing
//! here exports anything.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::ids::IdError;

/// The id of a trace: 32 hexadecimal digits, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct TraceId([u8; 16]);

crate::text_schema! { TraceId "the id of a trace" { "pattern": "^[0-9a-f]{32}$" } }

/// Where a call stands in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "TraceHeaders", into = "TraceHeaders")]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span the call was made in.
    pub parent_id: u64,
    /// The flags, such as that somebody keeps the trace.
    pub flags: u8,
    /// What others put beside it, passed on as it came.
    pub state: Option<String>,
}

/// As it is written in a record.
#[derive(Serialize, Deserialize)]
struct TraceHeaders {
    traceparent: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    tracestate: Option<String>,
}

const TRACEPARENT: &str = "traceparent";
const TRACEPARENT_FORMAT: &str =
    "it is `00-`, 32 digits of a trace, `-`, 16 of a span, `-` and 2 of flags, all hexadecimal and lower case";
/// More of a `tracestate` is not passed on.
const MAX_TRACESTATE_LENGTH: usize = 512;

impl TraceContext {
    /// Reads a `traceparent`, of this version or a later one.
    ///
    /// # Errors
    /// When it is none; by the standard the call then begins a trace of its own.
    pub fn parse(traceparent: &str) -> Result<Self, IdError> {
        let wrong = || IdError::new(TRACEPARENT, TRACEPARENT_FORMAT, traceparent);
        let parts: Vec<&str> = traceparent.splitn(5, '-').collect();
        let [version, trace, parent, flags, ..] = parts[..] else { return Err(wrong()) };
        let version = parse_hex_byte(version).filter(|version| *version != 0xff).ok_or_else(wrong)?;
        if parts.len() > 4 && version == 0 {
            return Err(wrong());
        }
        let trace_id: TraceId = trace.parse().map_err(|_| wrong())?;
        let digits = parent.len() == 16 && parent.bytes().all(is_lower_hex_digit);
        let parent_id = digits.then(|| u64::from_str_radix(parent, 16).ok()).flatten();
        let parent_id = parent_id.filter(|id| *id != 0).ok_or_else(wrong)?;
        Ok(Self { trace_id, parent_id, flags: parse_hex_byte(flags).ok_or_else(wrong)?, state: None })
    }

    /// With the `tracestate` that came beside it. One that is too long to be passed on is left out.
    #[must_use]
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Self {
        self.state = Some(tracestate.into()).filter(|state| !state.is_empty() && state.len() <= MAX_TRACESTATE_LENGTH);
        self
    }

    /// The text to be handed on.
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
        let wrong = || IdError::new("trace id", "it is 32 hexadecimal digits, lower case and not all zero", text);
        let number =
            (text.len() == 32 && text.bytes().all(is_lower_hex_digit)).then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().filter(|number| *number != 0).map(|number| Self(number.to_be_bytes())).ok_or_else(wrong)
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
        let written = serde_json::to_value(&trace).unwrap();
        assert_eq!(serde_json::from_value::<TraceContext>(written).unwrap(), trace);
        for wrong in [
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
            assert!(TraceContext::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(trace.with_state("x".repeat(513)).state, None);
    }
}
