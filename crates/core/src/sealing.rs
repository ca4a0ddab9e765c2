//! Seals secrets in records that must hold them for a time: open calls, unused answers of approvers, and conversations.
//!
//! In: arguments, and the record they belong to. Out: the same with each value under a secret name sealed, and back. Readers
//! that redact need not unseal them: a sealed value is still under its name. `storage` encrypts; the store keeps the key.

use std::sync::Arc;

use serde_json::Value;
use toolhub_storage::{backend::Backend, seal::SealKey};
use toolhub_types::{json::CompactJson, redact::Redactor};

/// Seals values by member name.
#[derive(Debug, Clone)]
pub struct Sealer {
    key: SealKey,
    redactor: Arc<Redactor>,
}

/// Some values could not be unsealed: the key that sealed them is gone. They are redacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsealError;

impl Sealer {
    pub(crate) fn new(store: &dyn Backend, redactor: Arc<Redactor>) -> Self {
        let key = store.seal_key().unwrap_or_else(|| SealKey::new(&SealKey::generate()));
        Self { key, redactor }
    }

    /// Seals the secrets of a value that belongs to a record.
    pub fn seal(&self, value: &mut Value, record: &str) {
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter_mut() {
                    if !value.is_null() && self.redactor.is_secret(name) {
                        *value = self.key.seal(record, &value.to_string()).into();
                    } else {
                        self.seal(value, record);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.seal(item, record)),
            // A text that looks sealed is sealed too, so that unsealing never mistakes it.
            Value::String(text) if text.starts_with(SealKey::PREFIX) => {
                *value = self.key.seal(record, &value.to_string()).into();
            }
            _ => {}
        }
    }

    /// Seals a text that mentions a secret name, such as arguments that are not valid JSON.
    pub fn seal_text(&self, text: &mut String, record: &str) {
        if self.redactor.mentions_secret(text) || text.starts_with(SealKey::PREFIX) {
            *text = self.key.seal(record, text);
        }
    }

    /// Unseals a text.
    ///
    /// # Errors
    /// When it cannot be unsealed. It is redacted.
    pub fn unseal_text(&self, text: &mut String, record: &str) -> Result<(), UnsealError> {
        if !text.starts_with(SealKey::PREFIX) {
            return Ok(());
        }
        let unsealed = self.key.unseal(record, text);
        let result = unsealed.is_some().then_some(()).ok_or(UnsealError);
        *text = unsealed.unwrap_or_else(|| Redactor::REDACTED.into());
        result
    }

    /// Seals a text that a client keeps for the hub. It can be opened with the same binding only.
    #[must_use]
    pub fn seal_token(&self, text: &str, binding: &str) -> String {
        self.key.seal(binding, text)
    }

    /// Whether a text looks like a sealed one.
    #[must_use]
    pub fn is_token(text: &str) -> bool {
        text.starts_with(SealKey::PREFIX)
    }

    /// Opens a text that a client kept; `None` if it was changed, or sealed with another binding or key.
    #[must_use]
    pub fn open_token(&self, token: &str, binding: &str) -> Option<String> {
        self.key.unseal(binding, token)
    }

    /// The sealed form of arguments; `None` if they have nothing to seal.
    pub(crate) fn sealed(&self, arguments: &CompactJson, record: &str) -> Option<CompactJson> {
        let has_none = |text: &str| !text.contains(SealKey::PREFIX) && !self.redactor.may_find_secrets(text.as_bytes());
        if arguments.large_text().is_some_and(has_none) {
            return None;
        }
        let value = arguments.to_value();
        self.has_secrets(&value).then(|| {
            let mut value = value.into_owned();
            self.seal(&mut value, record);
            value.into()
        })
    }

    fn has_secrets(&self, value: &Value) -> bool {
        match value {
            Value::Object(members) => members
                .iter()
                .any(|(name, value)| self.has_secrets(value) || (!value.is_null() && self.redactor.is_secret(name))),
            Value::Array(items) => items.iter().any(|item| self.has_secrets(item)),
            Value::String(text) => text.starts_with(SealKey::PREFIX),
            _ => false,
        }
    }

    /// Unseals the values of a record.
    ///
    /// # Errors
    /// When some cannot be unsealed. They are redacted, the others unsealed.
    pub fn unseal(&self, value: &mut Value, record: &str) -> Result<(), UnsealError> {
        match value {
            Value::Object(members) => unseal_all(members.values_mut().map(|value| self.unseal(value, record))),
            Value::Array(items) => unseal_all(items.iter_mut().map(|item| self.unseal(item, record))),
            Value::String(text) if text.starts_with(SealKey::PREFIX) => {
                let opened = self.key.unseal(record, text).and_then(|text| serde_json::from_str(&text).ok());
                let result = opened.is_some().then_some(()).ok_or(UnsealError);
                *value = opened.unwrap_or_else(|| Redactor::REDACTED.into());
                result
            }
            _ => Ok(()),
        }
    }
}

/// The result of all. None is skipped, so that each is unsealed or redacted.
fn unseal_all(results: impl Iterator<Item = Result<(), UnsealError>>) -> Result<(), UnsealError> {
    let failures = results.filter(Result::is_err).count();
    if failures == 0 { Ok(()) } else { Err(UnsealError) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhub_storage::backend::Memory;

    use super::*;

    #[test]
    fn secrets_are_sealed_in_place_and_unsealed_for_their_record_only() {
        let sealer = Sealer::new(&Memory::new(), Arc::default());
        let given = json!({
            "city": "Ulm", "token": null, "api_key": {"deep": ["x", 7.5]}, "list": [{"password": "hunter2"}],
            "odd": "sealed:v1:AAAA", "plain": {"qty": 1},
        });
        let mut sealed = given.clone();
        sealer.seal(&mut sealed, "a");
        let text = sealed.to_string();
        assert!(!["hunter2", "7.5", "\"x\"", "v1:AAAA"].iter().any(|secret| text.contains(secret)), "{text}");
        assert_eq!((&sealed["city"], &sealed["plain"]), (&json!("Ulm"), &json!({"qty": 1})));
        let mut opened = sealed.clone();
        assert_eq!(sealer.unseal(&mut opened, "a"), Ok(()));
        assert_eq!(opened, given);

        for (sealer, record) in [(&sealer, "b"), (&Sealer::new(&Memory::new(), Arc::default()), "a")] {
            let mut unopened = sealed.clone();
            assert_eq!(sealer.unseal(&mut unopened, record), Err(UnsealError));
            assert_eq!(unopened["list"], json!([{"password": "[redacted]"}]));
            assert_eq!(unopened["city"], "Ulm");
        }
        let malformed = r#"{"password": "hunter2"#;
        let mut text = malformed.to_owned();
        sealer.seal_text(&mut text, "a");
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(
            (sealer.unseal_text(&mut text.clone(), "b"), sealer.unseal_text(&mut text, "a")),
            (Err(UnsealError), Ok(()))
        );
        assert_eq!(text, malformed);
        let long = "x".repeat(100_000);
        for (arguments, has_secrets) in [
            (json!({"city": "Ulm", "token": null}), false),
            (json!({"city": long}), false),
            (json!({"city": long, "token": "x"}), true),
            (json!({"city": long, "odd": "sealed:v1:"}), true),
        ] {
            assert_eq!(sealer.sealed(&arguments.into(), "a").is_some(), has_secrets);
        }
    }
}
