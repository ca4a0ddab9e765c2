//! Ids and names: calls, runs, approvals, threads, states, tenants, callers, artifacts, idempotency keys.
//!
//! In: untrusted text, which is validated, or a request to mint an id. Out: small values that are cheap to clone.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use uuid::Uuid;

use crate::timestamp::Timestamp;

/// Why a text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a valid {what}: {rule}", ellipsize(text))]
pub struct IdError {
    what: &'static str,
    rule: &'static str,
    text: SmolStr,
}

/// Bounds the length of an untrusted text.
fn ellipsize(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

impl IdError {
    /// The error for an invalid `text`: `what` names the kind of id, `rule` says what is expected.
    #[must_use]
    pub fn new(what: &'static str, rule: &'static str, text: &str) -> Self {
        Self { what, rule, text: text.into() }
    }
}

/// The id of a call: one execution of a tool. Ids are ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct CallId(Uuid);

/// The id of a run: one agent invocation, made of steps. Ids are ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct RunId(Uuid);

/// The id of an approval: one request to a person about one call. Ids are ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ApprovalId(Uuid);

/// The id of a thread: a conversation, the unit of isolation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ThreadId(SmolStr);

/// The name of a tool state. Tools that name the same state share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct StateName(SmolStr);

/// The owner of threads. Default: `main`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Tenant(SmolStr);

/// The caller: the name of a key, a user, an agent. Rate limits, rules and approvals depend on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Caller(SmolStr);

/// The id of an artifact: content too long for the model, stored so that it can be fetched. Random, so that it cannot be guessed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ArtifactId(SmolStr);

/// An idempotency key: calls with the same key have one side effect and one outcome.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct IdempotencyKey(SmolStr);

impl CallId {
    /// A new id for a call that arrived at `now`.
    #[must_use]
    pub fn mint(now: Timestamp) -> Self {
        Self(uuid_v7_at(now))
    }

    /// The lower bound of the ids minted at `time`: not greater than any of them, and greater than all earlier ids.
    pub fn first_at(time: Timestamp) -> Self {
        // A UUIDv7 has 48 bits for its time.
        let millis = u64::try_from(time.millis()).unwrap_or(0).min((1 << 48) - 1);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid())
    }

    /// When it was minted: when the call arrived.
    #[must_use]
    pub fn minted_at(&self) -> Timestamp {
        let (millis, _) = self.0.as_u64_pair();
        Timestamp::from_millis((millis >> 16).cast_signed())
    }

    /// The next smaller id.
    pub fn predecessor(self) -> Self {
        Self(Uuid::from_u128(self.0.as_u128().saturating_sub(1)))
    }
}

impl RunId {
    /// A new id for a run that began at `now`.
    #[must_use]
    pub fn mint(now: Timestamp) -> Self {
        Self(uuid_v7_at(now))
    }
}

impl ApprovalId {
    /// A new id for an approval requested at `now`.
    #[must_use]
    pub fn mint(now: Timestamp) -> Self {
        Self(uuid_v7_at(now))
    }
}

/// What a minted thread id begins with.
const MINTED_THREAD: &str = "th_";

impl ThreadId {
    /// A new random thread id that cannot be guessed.
    #[must_use]
    pub fn mint() -> Self {
        Self(random_id(MINTED_THREAD))
    }

    /// Whether it looks like a minted one. A client that names such a thread has it from the hub.
    #[must_use]
    pub fn looks_minted(&self) -> bool {
        self.0.starts_with(MINTED_THREAD)
    }
}

impl ArtifactId {
    /// A new random artifact id that cannot be guessed.
    #[must_use]
    pub fn mint() -> Self {
        Self(random_id("art_"))
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self(SmolStr::new_static("main"))
    }
}

impl Default for Caller {
    fn default() -> Self {
        Self(SmolStr::new_static("local"))
    }
}

/// A UUIDv7. The random part need not be secret, so it comes from the fast thread-local generator:
/// the default one takes a lock that all callers would contend for.
fn uuid_v7_at(now: Timestamp) -> Uuid {
    let random = fastrand::u128(..).to_le_bytes();
    let mut tail = [0; 10];
    tail.copy_from_slice(&random[..10]);
    uuid::Builder::from_unix_timestamp_millis(now.millis().unsigned_abs(), &tail).into_uuid()
}

/// The text of a new UUIDv7 after a prefix.
#[must_use]
pub fn mint_uuid_text(prefix: &str, now: Timestamp) -> SmolStr {
    smol_str::format_smolstr!("{prefix}{}", uuid_v7_at(now).hyphenated())
}

/// 128 random bits from the operating system.
fn random_id(prefix: &str) -> SmolStr {
    smol_str::format_smolstr!("{prefix}{:032x}", Uuid::new_v4().as_u128())
}

macro_rules! uuid_text {
    ($id:ident, $prefix:literal, $what:literal) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.hyphenated())
            }
        }
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $id {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix).and_then(|rest| Uuid::try_parse(rest).ok()).map(Self).ok_or_else(|| {
                    IdError { what: $what, rule: concat!("expected `", $prefix, "` followed by a UUID"), text: text.into() }
                })
            }
        }
        impl TryFrom<SmolStr> for $id {
            type Error = IdError;
            fn try_from(text: SmolStr) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$id> for SmolStr {
            fn from(id: $id) -> Self {
                smol_str::format_smolstr!("{id}")
            }
        }
        crate::text_schema! { $id $what { "pattern": concat!("^", $prefix, "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$") } }
    };
}
uuid_text!(CallId, "call_", "call id");
uuid_text!(RunId, "run_", "run id");
uuid_text!(ApprovalId, "apr_", "approval id");

macro_rules! checked_text {
    ($id:ident, $what:literal, $max_length:literal, $allowed:expr, $pattern:expr, $rule:literal) => {
        checked_text!($id, $what, $max_length, $allowed, $pattern, $rule, []);
    };
    ($id:ident, $what:literal, $max_length:literal, $allowed:expr, $pattern:expr, $rule:literal, $reserved:expr) => {
        crate::text_schema! { $id $rule { "minLength": 1, "maxLength": $max_length, "pattern": $pattern } }
        impl $id {
            /// Validates a text.
            ///
            /// # Errors
            /// When it is empty, too long, or has a character that is not allowed.
            pub fn new(text: impl Into<SmolStr>) -> Result<Self, IdError> {
                let text = text.into();
                let allowed: fn(char) -> bool = $allowed;
                let reserved: &[&str] = &$reserved;
                let legal = text.chars().all(allowed) && !reserved.contains(&text.as_str());
                if text.is_empty() || text.len() > $max_length || !legal {
                    return Err(IdError { what: $what, rule: concat!("expected ", $rule), text });
                }
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl TryFrom<SmolStr> for $id {
            type Error = IdError;
            fn try_from(text: SmolStr) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
        impl From<$id> for SmolStr {
            fn from(id: $id) -> Self {
                id.0
            }
        }
    };
}
const ID_PATTERN: &str = r"^[A-Za-z0-9._:-]+$";
const PRINTABLE_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";
const IS_ID_CHAR: fn(char) -> bool = |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
/// Like [`ID_PATTERN`], but without `.` and `..`: clients resolve these in a URL path, so that such a thread could not be addressed.
const THREAD_ID_PATTERN: &str = r"^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9._:-]*$";
checked_text!(
    ThreadId,
    "thread id",
    128,
    IS_ID_CHAR,
    THREAD_ID_PATTERN,
    "1 to 128 letters, digits, `.`, `_`, `:` or `-`, but not `.` or `..`",
    [".", ".."]
);
checked_text!(StateName, "state name", 128, IS_ID_CHAR, ID_PATTERN, "1 to 128 letters, digits, `.`, `_`, `:` or `-`");
checked_text!(Tenant, "tenant", 64, IS_ID_CHAR, ID_PATTERN, "1 to 64 letters, digits, `.`, `_`, `:` or `-`");
checked_text!(Caller, "caller", 128, |c| !c.is_control(), PRINTABLE_PATTERN, "1 to 128 printable characters");
checked_text!(ArtifactId, "artifact id", 64, IS_ID_CHAR, ID_PATTERN, "1 to 64 letters, digits, `.`, `_`, `:` or `-`");
checked_text!(
    IdempotencyKey,
    "idempotency key",
    255,
    |c| !c.is_control(),
    PRINTABLE_PATTERN,
    "1 to 255 printable characters"
);

/// A thread and the tenant it belongs to: threads of two tenants that share an id are two threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// The tenant it belongs to.
    pub tenant: Tenant,
    /// Its id, unique only within the tenant.
    pub thread: ThreadId,
}

impl ThreadKey {
    /// The thread with this id of this tenant.
    #[must_use]
    pub fn new(tenant: &Tenant, thread: &ThreadId) -> Self {
        Self { tenant: tenant.clone(), thread: thread.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_ids_grow_with_time_and_survive_a_round_trip() {
        let early = CallId::mint(Timestamp::from_millis(1_000));
        let late = CallId::mint(Timestamp::from_millis(2_000));
        assert!(early < late);
        assert_eq!(early.to_string().parse(), Ok(early));
        assert!("run_0193".parse::<CallId>().unwrap_err().to_string().contains("call id"));
    }

    #[test]
    fn thread_ids_keep_to_their_alphabet() {
        for valid in ["t1", "a.b_c:d-e", "...", ".a", "..a", "a..", &"x".repeat(128)] {
            assert!(ThreadId::new(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "a/b", "a b", "ü", ".", "..", &"x".repeat(129)] {
            assert!(ThreadId::new(invalid).is_err(), "{invalid}");
        }
        assert_ne!(ThreadId::mint(), ThreadId::mint());
    }
}
