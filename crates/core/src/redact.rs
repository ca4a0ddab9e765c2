//! Takes secrets out of what is kept and told, by the names of members.
//!
//! In: arguments, parameters or updates. Out: the same, with the values of members that sound secret replaced. A secret under a
//! harmless name stays, unless the hub's owner has said that name.

use serde_json::{Map, Value};

use toolhub_types::policy::Glob;

/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// A name that holds one of these sounds secret, whatever its case, underscores and dashes.
const SECRET_WORDS: [&str; 5] = ["authorization", "apikey", "token", "secret", "password"];

/// The names that sound secret, and those the hub's owner has said besides.
#[derive(Debug, Default)]
pub(crate) struct Redactor(pub(crate) Vec<Glob>);

impl Redactor {
    /// Takes the secrets out of a value, at any depth.
    pub(crate) fn redact(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter_mut() {
                    if value.is_null() {
                        // That a secret was deleted is no secret.
                    } else if self.is_secret(name) {
                        *value = REDACTED.into();
                    } else {
                        self.redact(value);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            _ => {}
        }
    }

    /// Puts back what a person was not shown and has left as it stood, from the value as it was. `false` where something that is
    /// not shown stands in another place than before: then nobody can know what is meant.
    pub(crate) fn restore(&self, edited: &mut Value, was: &Value) -> bool {
        match edited {
            Value::Object(members) => members.iter_mut().all(|(name, value)| match was.get(name) {
                Some(was) if *value == REDACTED && self.is_secret(name) => {
                    *value = was.clone();
                    true
                }
                None if *value == REDACTED && self.is_secret(name) => false,
                was => self.restore(value, was.unwrap_or(&Value::Null)),
            }),
            // An item that was touched may be another one now, so only those that were not are known.
            Value::Array(items) => items.iter_mut().enumerate().all(|(at, item)| {
                let was = was.get(at).filter(|was| {
                    let mut shown = (*was).clone();
                    self.redact(&mut shown);
                    shown == *item
                });
                self.restore(item, was.unwrap_or(&Value::Null))
            }),
            _ => true,
        }
    }

    /// Leaves out what was taken out and is not known.
    pub(crate) fn remove_redacted(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, value| *value != REDACTED || !self.is_secret(name));
                members.values_mut().for_each(|value| self.remove_redacted(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.remove_redacted(item)),
            _ => {}
        }
    }

    /// Whether a value, which may stand under a secret name, holds something that was taken out and is not known.
    pub(crate) fn contains_redacted(&self, value: &Value, is_secret: bool) -> bool {
        match value {
            Value::Object(members) => {
                members.iter().any(|(name, value)| self.contains_redacted(value, is_secret || self.is_secret(name)))
            }
            Value::Array(items) => items.iter().any(|item| self.contains_redacted(item, is_secret)),
            value => is_secret && *value == REDACTED,
        }
    }

    /// Whether what stands under this name is not told.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        is_secret_name(name) || (!self.0.is_empty() && self.0.iter().any(|glob| glob.matches(&name.to_lowercase())))
    }
}

/// The value without its secrets.
pub(crate) fn redact(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(redact_members(members)),
        Value::Array(items) => items.iter().map(redact).collect(),
        leaf => leaf.clone(),
    }
}

/// The members without their secrets.
pub(crate) fn redact_members(members: &Map<String, Value>) -> Map<String, Value> {
    let member = |(name, value): (&String, &Value)| {
        // That a secret was deleted is no secret.
        let hide = !value.is_null() && is_secret_name(name);
        (name.clone(), if hide { REDACTED.into() } else { redact(value) })
    };
    members.iter().map(member).collect()
}

/// Whether a JSON text may have a member that sounds secret. Quick, and sooner wrong than silent: a yes says little.
pub(crate) fn may_hold_secrets(text: &[u8]) -> bool {
    // What is escaped or foreign may read otherwise than it is written.
    if text.iter().any(|byte| *byte == b'\\' || !byte.is_ascii()) {
        return true;
    }
    let plain: Vec<u8> =
        (text.iter().filter(|byte| !matches!(byte, b'_' | b'-' | b' '))).map(u8::to_ascii_lowercase).collect();
    std::str::from_utf8(&plain).is_ok_and(|plain| SECRET_WORDS.iter().any(|word| plain.contains(word)))
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect();
    SECRET_WORDS.iter().any(|word| plain.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_that_cannot_hold_a_secret_is_known_at_a_glance() {
        for harmless in [r#"{"city":"Ulm","list":[1,2]}"#, "{}"] {
            assert!(!may_hold_secrets(harmless.as_bytes()), "{harmless}");
        }
        // One that has the word only in a value is looked at closely, too.
        let doubtful =
            [r#"{"API-Key":1}"#, r#"{"to ken":1}"#, r#"{"\u0074oken":1}"#, "{\"to\u{212a}en\":1}", r#"{"a":"token"}"#];
        for text in doubtful {
            assert!(may_hold_secrets(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_was_left_as_it_was_shown_is_put_back_and_never_taken_for_something_else() {
        let redactor = Redactor::default();
        let was =
            json!({"token": "a", "n": 1, "in": {"password": ["b"]}, "list": [{"id": 1, "token": "c"}, {"token": "d"}]});
        let mut shown = was.clone();
        redactor.redact(&mut shown);
        let edit = |change: &dyn Fn(&mut Value)| {
            let mut edited = shown.clone();
            change(&mut edited);
            redactor.restore(&mut edited, &was).then_some(edited)
        };
        assert_eq!(edit(&|_| ()), Some(was.clone()));
        let changed = edit(&|edited| {
            edited["n"] = 2.into();
            edited["token"] = "e".into();
        });
        assert_eq!(changed.map(|edited| (edited["n"].clone(), edited["token"].clone())), Some((json!(2), json!("e"))));
        assert_eq!(edit(&|edited| edited["key_token"] = REDACTED.into()), None);
        // Whose secret would it be?
        assert_eq!(edit(&|edited| drop(edited["list"].as_array_mut().unwrap().remove(0))), None);
        assert_eq!(edit(&|edited| edited["list"][0]["id"] = 2.into()), None);
        assert!(edit(&|edited| edited["list"] = json!([{"token": "f"}])).is_some());
    }

    #[test]
    fn members_that_sound_secret_lose_their_values_at_any_depth() {
        let told = redact(&json!({
            "Authorization": "Bearer x", "api_key": "x", "API-Key": "x", "x-api-key": "x", "accessToken": "x",
            "client_secret": {"inner": "x"}, "PASSWORD_2": ["x"], "list": [{"deep": {"refresh_token": "x"}}],
            "token": null, "city": "Ulm", "count": 3,
        }));
        assert!(!told.to_string().contains("\"x\""), "{told}");
        assert_eq!(told["list"], json!([{"deep": {"refresh_token": REDACTED}}]));
        assert_eq!((&told["token"], &told["city"], &told["count"]), (&Value::Null, &json!("Ulm"), &json!(3)));
    }
}
