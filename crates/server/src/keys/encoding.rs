//! Text form of a key: `thk_`, its id, and a secret of 32 bytes' worth of letters and digits.
//!
//! In: random bytes, or the key that a client sends. Out: a new key with its hash, or the id and the digest of a given
//! one. A key is shown once; only its digest is stored.

use std::fmt;

use sha2::{Digest as _, Sha256};
use toolhub_core::digest;

/// SHA-256 of a whole key.
pub(crate) type Digest = [u8; 32];

const PREFIX: &str = "thk_";
const ID_LEN: usize = 12;
/// 62^43 is more than 2^256.
const SECRET_LEN: usize = 43;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new key. It is stored nowhere: only its hash is.
#[derive(Clone)]
pub struct NewKey {
    /// Its id in lists; not secret.
    pub id: String,
    /// The key itself, for the client that will use it.
    pub key: String,
    /// The value for a config file: `sha256:` and the digest of the key.
    pub hash: String,
}

impl NewKey {
    /// Generates a key.
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    pub fn make() -> std::io::Result<Self> {
        let id = random_text(ID_LEN)?;
        let key = format!("{PREFIX}{id}_{}", random_text(SECRET_LEN)?);
        let hash = format_hash(&key_digest(&key));
        Ok(Self { id, key, hash })
    }
}

/// Omits the key: debug output ends up in logs.
impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("id", &self.id).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// The id in the text of a key, if the text has the form of a key.
pub(crate) fn key_id(key: &str) -> Option<&str> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let is_alphanumeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (id.len() == ID_LEN && secret.len() == SECRET_LEN && is_alphanumeric(id) && is_alphanumeric(secret)).then_some(id)
}

/// The digest of a key.
pub(crate) fn key_digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn format_hash(digest: &Digest) -> String {
    format!("sha256:{}", digest::hex(digest))
}

/// Parses `sha256:` and a digest in hexadecimal.
pub(crate) fn parse_hash(hash: &str) -> Option<Digest> {
    let hex = hash.strip_prefix("sha256:")?;
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = Digest::default();
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Random letters and digits of the operating system, uniformly distributed, which cannot be guessed.
pub(crate) fn random_text(len: usize) -> std::io::Result<String> {
    let mut text = String::with_capacity(len);
    let mut bytes = [0; 64];
    while text.len() < len {
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        // 248 is four times 62: larger bytes would make the first letters more likely.
        let uniform =
            bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(ALPHABET[usize::from(*byte) % 62]));
        text.extend(uniform.take(len - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_read_back_and_its_hash_is_that_of_the_whole_text() {
        let (one, other) = (NewKey::make().unwrap(), NewKey::make().unwrap());
        assert_ne!(one.key, other.key);
        assert_eq!(key_id(&one.key), Some(one.id.as_str()));
        assert_eq!(parse_hash(&one.hash), Some(key_digest(&one.key)));
        assert!(!format!("{one:?}").contains(&one.key[17..]));
    }

    #[test]
    fn a_text_of_another_form_is_no_key() {
        let good = format!("thk_{}_{}", "a".repeat(12), "b".repeat(43));
        assert!(key_id(&good).is_some());
        for bad in
            ["", "thk_", "thk__", &good[1..], &good[..good.len() - 1], &good.replace('b', "ü"), &format!("{good}b")]
        {
            assert_eq!(key_id(bad), None, "{bad}");
        }
        for bad in ["", "sha256:", "sha256:00", &format!("sha256:{}", "g".repeat(64)), &"0".repeat(64)] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }
}
