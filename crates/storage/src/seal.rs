//! Authenticated encryption of texts in rows (ChaCha20-Poly1305).
//!
//! In: a text, and the record that it belongs to. Out: a sealed text that only the same key unseals, and only for the same record.
//! Which texts are sealed is decided above; a backend keeps the key.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

/// A key that seals texts. Never printed.
#[derive(Clone)]
pub struct SealKey(Arc<LessSafeKey>);

impl SealKey {
    /// The length of a key in bytes.
    pub const LEN: usize = 32;
    /// The beginning of every sealed text.
    pub const PREFIX: &str = "sealed:v1:";

    /// Random bytes for a new key.
    #[must_use]
    pub fn generate() -> [u8; Self::LEN] {
        random_bytes()
    }

    /// The key with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).expect("the length is that of the algorithm");
        Self(Arc::new(LessSafeKey::new(key)))
    }

    /// Seals a text of a record. The nonce is random: 96 bits suffice for some billion texts with one key.
    #[must_use]
    pub fn seal(&self, record: &str, text: &str) -> String {
        let nonce: [u8; NONCE_LEN] = random_bytes();
        let mut bytes = text.as_bytes().to_vec();
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(record.as_bytes()),
            &mut bytes,
        );
        sealed.expect("no text is longer than the algorithm's limit of 256 GiB");
        let mut text = Self::PREFIX.to_owned();
        STANDARD_NO_PAD.encode_string([nonce.as_slice(), &bytes].concat(), &mut text);
        text
    }

    /// Unseals a text; `None` if another key sealed it, it belongs to another record, or it was changed.
    #[must_use]
    pub fn unseal(&self, record: &str, sealed: &str) -> Option<String> {
        let mut bytes = STANDARD_NO_PAD.decode(sealed.strip_prefix(Self::PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.open_in_place(nonce, Aad::from(record.as_bytes()), sealed).ok()?;
        str::from_utf8(opened).ok().map(str::to_owned)
    }
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has random numbers");
    bytes
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_unsealed_by_its_key_for_its_record_and_unchanged_only() {
        let (key, other) = (SealKey::new(&SealKey::generate()), SealKey::new(&SealKey::generate()));
        for text in ["", "hunter2", "ü\n\"x\""] {
            let sealed = key.seal("call", text);
            assert_eq!(key.unseal("call", &sealed).as_deref(), Some(text));
            assert_ne!(key.seal("call", text), sealed, "the nonce differs");
            let mut changed = sealed.clone();
            changed.replace_range(12..13, if &sealed[12..13] == "A" { "B" } else { "A" });
            for (key, record, sealed) in [
                (&other, "call", &sealed),
                (&key, "other", &sealed),
                (&key, "call", &changed),
                (&key, "call", &text.to_owned()),
            ] {
                assert_eq!(key.unseal(record, sealed), None);
            }
        }
        for broken in ["sealed:v1:", "sealed:v1:AAAA", "sealed:v1:ü", "sealed:v2:AAAA"] {
            assert_eq!(key.unseal("call", broken), None, "{broken}");
        }
    }
}
