//! A key as a text: `thk_`, its id, and 32 secret bytes' worth of letters and digits.
//!
//! In: chance, or what a client sends. Out: a new key with its hash, or the id and the digest of a given one. A key is
//! shown once; what is kept is its digest.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 of a whole key.
pub(crate) type Digest = [u8; 32];

const PREFIX: &str = "thk_";
const ID_LEN: usize = 12;
/// 62 to the power of 43 is more than 2 to the power of 256.
const SECRET_LEN: usize = 43;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key that was just made. Whoever has it must keep it: nothing else does.
#[derive(Clone)]
pub struct NewKey {
    /// Its name in lists; no secret.
    pub id: String,
    /// The key itself, to be given to whoever shall use it.
    pub key: String,
    /// What a config file says instead of the key: `sha256:` and the digest of it.
    pub hash: String,
}

impl NewKey {
    /// Makes a key.
    ///
    /// # Errors
    /// When the operating system has no chance to give.
    pub fn make() -> std::io::Result<Self> {
        let id = random_text(ID_LEN)?;
        let key = format!("{PREFIX}{id}_{}", random_text(SECRET_LEN)?);
        let hash = format_hash(&key_digest(&key));
        Ok(Self { id, key, hash })
    }
}

/// The key is left out: what is printed for people who look for mistakes ends in logs.
impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("id", &self.id).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// The id in the text of a key, where it has the form of one.
pub(crate) fn key_id(key: &str) -> Option<&str> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (id.len() == ID_LEN && secret.len() == SECRET_LEN && plain(id) && plain(secret)).then_some(id)
}

/// The digest of a key.
pub(crate) fn key_digest(key: &str) -> Digest {
    Sha256::digest(key.as_bytes()).into()
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn format_hash(digest: &Digest) -> String {
    digest.iter().fold(String::from("sha256:"), |text, byte| text + &format!("{byte:02x}"))
}

/// The digest in such a text.
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

/// Letters and digits by chance, each as likely as the other.
fn random_text(many: usize) -> std::io::Result<String> {
    let mut text = String::with_capacity(many);
    let mut bytes = [0; 64];
    while text.len() < many {
        getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
        // 248 is four times 62: what lies above would favour the first letters.
        let fair = bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(ALPHABET[usize::from(*byte) % 62]));
        text.extend(fair.take(many - text.len()));
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
