//! Signatures of webhooks, as the Standard Webhooks specification says.
//!
//! In: a secret, and the id, time and body of a message. Out: the value of the header `webhook-signature`. During a rotation a message is
//! signed with two secrets, so that the receiver accepts it with either.

use std::{fmt, str::FromStr};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::hmac;

/// The prefix of a secret.
const PREFIX: &str = "whsec_";
/// Lengths of a key that the specification allows, in bytes.
const MIN_BYTES: usize = 24;
const MAX_BYTES: usize = 64;

/// A secret that signs messages: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone)]
pub struct SigningSecret(hmac::Key);

/// Why a text is no signing secret. Does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a signing secret is `whsec_` and the base64 of 24 to 64 random bytes, such as `echo whsec_$(openssl rand -base64 32)` prints"
)]
pub struct SigningSecretError;

impl FromStr for SigningSecret {
    type Err = SigningSecretError;

    fn from_str(text: &str) -> Result<Self, SigningSecretError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(SigningSecretError)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| SigningSecretError)?;
        if !(MIN_BYTES..=MAX_BYTES).contains(&bytes.len()) {
            return Err(SigningSecretError);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(••••)")
    }
}

/// The value of `webhook-signature`: one signature per secret.
pub(super) fn sign(secrets: &[SigningSecret], id: &str, seconds: i64, body: &[u8]) -> String {
    let signature = |SigningSecret(key): &SigningSecret| {
        let mut context = hmac::Context::with_key(key);
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
    };
    secrets.iter().map(signature).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret: SigningSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(sign(std::slice::from_ref(&secret), id, 1_614_265_330, body), expected);
        assert_eq!(sign(&[secret.clone(), secret], id, 1_614_265_330, body), format!("{expected} {expected}"));
    }

    #[test]
    fn only_a_long_enough_key_with_the_prefix_is_a_secret() {
        for invalid in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_?", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(invalid.parse::<SigningSecret>().is_err(), "{invalid}");
        }
    }
}
