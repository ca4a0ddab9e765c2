//! Redacts secrets in stored and reported values, by member name, and says which names are secret.
//!
//! In: arguments, parameters or updates. Out: the same, with the values of members with secret names replaced. A secret
//! under another name stays, unless the configuration lists that name.

use serde_json::Value;

use crate::policy::Glob;

/// A name that contains one of these is secret, ignoring case and [separators](is_separator).
const SECRET_WORDS: [&str; 11] = [
    "authorization",
    "apikey",
    "accesskey",
    "privatekey",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "cookie",
];
/// In the name of a setting these too. In the name of an argument they are mostly harmless: `sort_key`, `author`, `passenger`.
const SECRET_SETTING_WORDS: [&str; 5] = ["auth", "key", "pass", "session", "private"];

/// Redacts the members with built-in secret names, and those that match the configured globs.
#[derive(Debug, Default)]
pub struct Redactor(pub Vec<Glob>);

impl Redactor {
    /// Replaces a secret.
    pub const REDACTED: &str = "[redacted]";

    /// Redacts the secrets of a value, at any depth.
    pub fn redact(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter_mut() {
                    if value.is_null() {
                        // Null is not secret: it only shows that a value was deleted.
                    } else if self.is_secret(name) {
                        *value = Self::REDACTED.into();
                    } else {
                        self.redact(value);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            _ => {}
        }
    }

    /// Restores the redacted values that an editor left unchanged, from the original. `false` if a redacted value is at
    /// another place than before, because its original is unknown then.
    pub fn restore(&self, edited: &mut Value, original: &Value) -> bool {
        match edited {
            Value::Object(members) => members.iter_mut().all(|(name, value)| match original.get(name) {
                Some(original) if *value == Self::REDACTED && self.is_secret(name) => {
                    *value = original.clone();
                    true
                }
                None if *value == Self::REDACTED && self.is_secret(name) => false,
                original => self.restore(value, original.unwrap_or(&Value::Null)),
            }),
            // A changed item may be a different one now, so only unchanged items are restored.
            Value::Array(items) => items.iter_mut().enumerate().all(|(index, item)| {
                let original = original.get(index).filter(|original| {
                    let mut redacted = (*original).clone();
                    self.redact(&mut redacted);
                    redacted == *item
                });
                self.restore(item, original.unwrap_or(&Value::Null))
            }),
            _ => true,
        }
    }

    /// Removes the redacted members, whose values are unknown.
    pub fn remove_redacted(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, value| *value != Self::REDACTED || !self.is_secret(name));
                members.values_mut().for_each(|value| self.remove_redacted(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.remove_redacted(item)),
            _ => {}
        }
    }

    /// Whether a value, which may be under a secret name, contains a redacted value.
    pub fn contains_redacted(&self, value: &Value, is_secret: bool) -> bool {
        match value {
            Value::Object(members) => {
                members.iter().any(|(name, value)| self.contains_redacted(value, is_secret || self.is_secret(name)))
            }
            Value::Array(items) => items.iter().any(|item| self.contains_redacted(item, is_secret)),
            value => is_secret && *value == Self::REDACTED,
        }
    }

    /// The value without its secrets.
    #[must_use]
    pub fn redacted(&self, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    // Null is not secret: it only shows that a value was deleted.
                    let is_secret = !value.is_null() && self.is_secret(name);
                    (name.clone(), if is_secret { Self::REDACTED.into() } else { self.redacted(value) })
                };
                Value::Object(members.iter().map(member).collect())
            }
            Value::Array(items) => items.iter().map(|item| self.redacted(item)).collect(),
            leaf => leaf.clone(),
        }
    }

    /// Whether a JSON text may have a member with a secret name. A fast check with false positives but no false negatives.
    #[must_use]
    pub fn may_find_secrets(&self, text: &[u8]) -> bool {
        // Escapes and non-ASCII characters may hide a word from the search below, and it does not know the configured globs.
        if !self.0.is_empty() || text.iter().any(|byte| *byte == b'\\' || !byte.is_ascii()) {
            return true;
        }
        let normalized: Vec<u8> =
            (text.iter().filter(|byte| !is_separator(char::from(**byte)))).map(u8::to_ascii_lowercase).collect();
        std::str::from_utf8(&normalized).is_ok_and(|text| SECRET_WORDS.iter().any(|word| text.contains(word)))
    }

    /// The part of a JSON pointer up to its first secret name, if it has one: what it points to must not be shown.
    #[must_use]
    pub fn secret_part<'a>(&self, pointer: &'a str) -> Option<&'a str> {
        let mut end = 0;
        pointer.split('/').skip(1).find_map(|segment| {
            end += 1 + segment.len();
            self.is_secret(&segment.replace("~1", "/").replace("~0", "~")).then(|| &pointer[..end])
        })
    }

    /// The texts and numbers under secret names, as text.
    #[must_use]
    pub fn secret_texts(&self, value: &Value) -> Vec<String> {
        let mut texts = Vec::new();
        self.collect_secrets(value, false, &mut texts);
        texts
    }

    fn collect_secrets(&self, value: &Value, is_secret: bool, texts: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                if is_secret {
                    texts.push(name.clone());
                }
                self.collect_secrets(value, is_secret || self.is_secret(name), texts);
            }),
            Value::Array(items) => items.iter().for_each(|item| self.collect_secrets(item, is_secret, texts)),
            Value::String(text) if is_secret => texts.push(text.clone()),
            Value::Number(number) if is_secret => texts.push(number.to_string()),
            _ => {}
        }
    }

    /// Whether a text that need not be JSON contains a secret name.
    #[must_use]
    pub fn mentions_secret(&self, text: &str) -> bool {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && !is_separator(c));
        is_secret_name(text) || (!self.0.is_empty() && words.any(|word| self.is_secret(word)))
    }

    /// Whether values under this name are redacted.
    pub fn is_secret(&self, name: &str) -> bool {
        is_secret_name(name) || (!self.0.is_empty() && self.0.iter().any(|glob| glob.matches(&name.to_lowercase())))
    }
}

/// Whether values under this name are secret without being configured as such.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    contains_any(name, &SECRET_WORDS)
}

/// Whether a header or an environment variable of this name has a secret value. Wider than [`is_secret_name`]: such values are few,
/// and one that is masked without need does no harm.
#[must_use]
pub fn is_secret_setting(name: &str) -> bool {
    is_secret_name(name) || contains_any(name, &SECRET_SETTING_WORDS)
}

fn contains_any(name: &str, words: &[&str]) -> bool {
    let normalized: String = name.chars().filter(|c| !is_separator(*c)).flat_map(char::to_lowercase).collect();
    words.iter().any(|word| normalized.contains(word))
}

/// Ignored in names.
fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | ' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_that_cannot_hold_a_secret_is_known_at_a_glance() {
        for harmless in [r#"{"city":"Ulm","list":[1,2]}"#, "{}"] {
            assert!(!Redactor::default().may_find_secrets(harmless.as_bytes()), "{harmless}");
        }
        // A word that occurs only in a value is a false positive.
        let doubtful =
            [r#"{"API-Key":1}"#, r#"{"to ken":1}"#, r#"{"\u0074oken":1}"#, "{\"to\u{212a}en\":1}", r#"{"a":"token"}"#];
        for text in doubtful {
            assert!(Redactor::default().may_find_secrets(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_was_left_as_it_was_shown_is_put_back_and_never_taken_for_something_else() {
        let redactor = Redactor::default();
        let original =
            json!({"token": "a", "n": 1, "in": {"password": ["b"]}, "list": [{"id": 1, "token": "c"}, {"token": "d"}]});
        let mut shown = original.clone();
        redactor.redact(&mut shown);
        let edit = |change: &dyn Fn(&mut Value)| {
            let mut edited = shown.clone();
            change(&mut edited);
            redactor.restore(&mut edited, &original).then_some(edited)
        };
        assert_eq!(edit(&|_| ()), Some(original.clone()));
        let changed = edit(&|edited| {
            edited["n"] = 2.into();
            edited["token"] = "e".into();
        });
        assert_eq!(changed.map(|edited| (edited["n"].clone(), edited["token"].clone())), Some((json!(2), json!("e"))));
        assert_eq!(edit(&|edited| edited["key_token"] = Redactor::REDACTED.into()), None);
        // The secret cannot be attributed to an item.
        assert_eq!(edit(&|edited| drop(edited["list"].as_array_mut().unwrap().remove(0))), None);
        assert_eq!(edit(&|edited| edited["list"][0]["id"] = 2.into()), None);
        assert!(edit(&|edited| edited["list"] = json!([{"token": "f"}])).is_some());
    }

    #[test]
    fn the_secret_part_of_a_pointer_ends_with_its_first_secret_name() {
        let redactor = Redactor::default();
        for (pointer, part) in [
            ("", None),
            ("/city/0", None),
            ("/token", Some("/token")),
            ("/a~1b/0/api~0_key", None),
            ("/list/0/api_key/inner/token", Some("/list/0/api_key")),
        ] {
            assert_eq!(redactor.secret_part(pointer), part, "{pointer}");
        }
        let value = json!({"token": {"a": ["b", 7, null]}, "city": "Ulm", "list": [{"password": "c"}]});
        let mut texts = redactor.secret_texts(&value);
        texts.sort();
        assert_eq!(texts, ["7", "a", "b", "c"]);
    }

    #[test]
    fn a_name_is_secret_by_its_words_and_a_setting_by_a_few_more() {
        for name in ["X-Api-Key", "access.key.id", "Set-Cookie", "db_passwd", "awsCredentials", "refreshToken"] {
            assert!(is_secret_name(name) && is_secret_setting(name), "{name}");
        }
        for name in ["STRIPE_KEY", "X-Auth", "DB_PASS", "SessionId"] {
            assert!(!is_secret_name(name) && is_secret_setting(name), "{name}");
        }
        assert!(!["Accept", "LANG", "city"].into_iter().any(is_secret_setting));
    }

    #[test]
    fn members_that_sound_secret_lose_their_values_at_any_depth() {
        let redacted = Redactor::default().redacted(&json!({
            "Authorization": "Bearer x", "api_key": "x", "API-Key": "x", "x-api-key": "x", "accessToken": "x",
            "client_secret": {"inner": "x"}, "PASSWORD_2": ["x"], "list": [{"deep": {"refresh_token": "x"}}],
            "token": null, "city": "Ulm", "count": 3,
        }));
        assert!(!redacted.to_string().contains("\"x\""), "{redacted}");
        assert_eq!(redacted["list"], json!([{"deep": {"refresh_token": Redactor::REDACTED}}]));
        assert_eq!(
            (&redacted["token"], &redacted["city"], &redacted["count"]),
            (&Value::Null, &json!("Ulm"), &json!(3))
        );
    }
}
