//! The names of single things: calls, runs, approvals, threads, states, tenants, callers, artifacts, idempotency keys.
//!
//! In: text from outside, checked, or a request to mint one. Out: small values that are cheap to clone.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use uuid::Uuid;

use crate::timestamp::Timestamp;

/// Why a text is not an id of the wanted sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no {what}: {rule}", ellipsize(text))]
pub struct IdError {
    what: &'static str,
    rule: &'static str,
    text: SmolStr,
}

/// A text from outside may be of any length.
fn ellipsize(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}

impl IdError {
    /// A text that is no id: what it was meant to be, and what such ids look like.
    #[must_use]
    pub fn new(what: &'static str, rule: &'static str, text: &str) -> Self {
        Self { what, rule, text: text.into() }
    }
}

/// One execution of a tool. Ids grow with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct CallId(Uuid);

/// One agent invocation, made of steps. Ids grow with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct RunId(Uuid);

/// One question to a person about one call. Ids grow with time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ApprovalId(Uuid);

/// A conversation: the unit of isolation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ThreadId(SmolStr);

/// What tools remember something under. Tools that name the same state share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct StateName(SmolStr);

/// Whose threads they are; `main` where nobody said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Tenant(SmolStr);

/// Who asks: a key's name, a user, an agent. Limits, rules and approvals look at it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct Caller(SmolStr);

/// Content too long for the model, kept to be fetched. Random, so that it cannot be guessed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ArtifactId(SmolStr);

/// The caller's word that two calls are the same call; one effect, one answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct IdempotencyKey(SmolStr);

impl CallId {
    /// A new id for a call that arrived at `now`.
    #[must_use]
    pub fn mint(now: Timestamp) -> Self {
        Self(uuid_v7_at(now))
    }

    /// An id that is not behind any id of a call that arrived at `moment`, and behind all of earlier ones.
    pub fn first_at(moment: Timestamp) -> Self {
        // An id has 48 bits for its time.
        let millis = u64::try_from(moment.millis()).unwrap_or(0).min((1 << 48) - 1);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid())
    }

    /// The id right before this one.
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
    /// A new id for a question asked at `now`.
    #[must_use]
    pub fn mint(now: Timestamp) -> Self {
        Self(uuid_v7_at(now))
    }
}

impl ThreadId {
    /// A new thread that nobody can guess.
    #[must_use]
    pub fn mint() -> Self {
        Self(random_id("th_"))
    }
}

impl ArtifactId {
    /// A new artifact that nobody can guess.
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
/// the usual one takes a lock that all callers would share.
fn uuid_v7_at(now: Timestamp) -> Uuid {
    let random = fastrand::u128(..).to_le_bytes();
    let mut tail = [0; 10];
    tail.copy_from_slice(&random[..10]);
    uuid::Builder::from_unix_timestamp_millis(now.millis().unsigned_abs(), &tail).into_uuid()
}

/// 128 bits from the operating system.
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
                    IdError { what: $what, rule: concat!("it is `", $prefix, "` and a UUID"), text: text.into() }
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
    ($id:ident, $what:literal, $longest:literal, $allowed:expr, $pattern:expr, $rule:literal) => {
        checked_text!($id, $what, $longest, $allowed, $pattern, $rule, []);
    };
    ($id:ident, $what:literal, $longest:literal, $allowed:expr, $pattern:expr, $rule:literal, $never:expr) => {
        crate::text_schema! { $id $rule { "minLength": 1, "maxLength": $longest, "pattern": $pattern } }
        impl $id {
            /// Checks a text from outside.
            ///
            /// # Errors
            /// When it is empty, too long, or has a character that is not allowed.
            pub fn new(text: impl Into<SmolStr>) -> Result<Self, IdError> {
                let text = text.into();
                let allowed: fn(char) -> bool = $allowed;
                let never: &[&str] = &$never;
                let legal = text.chars().all(allowed) && !never.contains(&text.as_str());
                if text.is_empty() || text.len() > $longest || !legal {
                    return Err(IdError { what: $what, rule: $rule, text });
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
/// As words, but for `.` and `..`: in an address those are steps, and the thread would be reached by nobody.
const THREAD_ID_PATTERN: &str = r"^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9._:-]*$";
checked_text!(
    ThreadId,
    "thread id",
    128,
    IS_ID_CHAR,
    THREAD_ID_PATTERN,
    "it takes 1 to 128 letters, digits, `.`, `_`, `:` or `-`, and is neither `.` nor `..`",
    [".", ".."]
);
checked_text!(
    StateName,
    "state name",
    128,
    IS_ID_CHAR,
    ID_PATTERN,
    "it takes 1 to 128 letters, digits, `.`, `_`, `:` or `-`"
);
checked_text!(Tenant, "tenant", 64, IS_ID_CHAR, ID_PATTERN, "it takes 1 to 64 letters, digits, `.`, `_`, `:` or `-`");
checked_text!(Caller, "caller", 128, |c| !c.is_control(), PRINTABLE_PATTERN, "it takes 1 to 128 printable characters");
checked_text!(
    ArtifactId,
    "artifact id",
    64,
    IS_ID_CHAR,
    ID_PATTERN,
    "it takes 1 to 64 letters, digits, `.`, `_`, `:` or `-`"
);
checked_text!(
    IdempotencyKey,
    "idempotency key",
    255,
    |c| !c.is_control(),
    PRINTABLE_PATTERN,
    "it takes 1 to 255 printable characters"
);

/// A thread and the tenant it belongs to: threads of two tenants that share an id are two threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// The tenant it belongs to.
    pub tenant: Tenant,
    /// Its id, which means nothing without the tenant.
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
        for good in ["t1", "a.b_c:d-e", "...", ".a", "..a", "a..", &"x".repeat(128)] {
            assert!(ThreadId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "ü", ".", "..", &"x".repeat(129)] {
            assert!(ThreadId::new(bad).is_err(), "{bad}");
        }
        assert_ne!(ThreadId::mint(), ThreadId::mint());
    }
}
