//! Secrets of a config: references to a variable or a file, or literal texts.
//!
//! In: `"text"`, `{ env = "NAME" }` or `{ file = "path" }`. Out: a value that prints masked, also in debug output.

use std::{borrow::Cow, fmt, fs, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

use super::{Diagnostics, KeyPath};

/// Where a secret comes from.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SecretSource {
    /// From an environment variable.
    Env {
        /// The variable.
        env: String,
    },
    /// From a file; surrounding whitespace is trimmed.
    File {
        /// The file.
        file: String,
    },
    /// A literal.
    Text(SecretString),
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretString(String);

/// Printed in place of a secret.
const MASK: &str = "••••";
/// How many trailing characters of a long secret are visible.
const VISIBLE_CHARS: usize = 4;
/// Shorter secrets are masked completely: four characters would be a large part of them.
const MIN_LEN_TO_SHOW_TAIL: usize = 20;

impl SecretSource {
    /// Fetches the secret configured at the key `at`. On failure, reports a problem, which never contains the secret, and returns `None`.
    pub fn fetch(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<SecretString> {
        match self {
            Self::Text(text) => match text.reveal() {
                "" => {
                    diagnostics.report(at, format!("`{at}` is empty"), "set a value, or omit the key");
                    None
                }
                // The output of `masked` was copied back into a config.
                masked if masked.starts_with(MASK) => {
                    let message = format!("`{at}` is a masked secret, not the secret itself");
                    diagnostics.report(at, message, "write the secret itself, or a reference: { env = \"NAME\" }");
                    None
                }
                _ => Some(text.clone()),
            },
            Self::Env { env } => {
                let value = diagnostics.env().variable(env);
                if value.is_none() {
                    let message = format!("environment variable {env} is not set (used by `{at}`)");
                    let help = diagnostics.env().unset_hint(env);
                    diagnostics.report(&at.key("env"), message, help);
                }
                value.map(SecretString)
            }
            Self::File { file } => match fs::read_to_string(diagnostics.resolve_path(&at.key("file"), file)) {
                Ok(text) => Some(SecretString::new(text.trim())),
                Err(error) => {
                    let message = format!("cannot read {file} (used by `{at}`): {error}");
                    diagnostics.report(&at.key("file"), message, "check the path and its permissions");
                    None
                }
            },
        }
    }
}

impl SecretString {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to send or compare it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The mask, followed by the last characters if the secret is long.
    #[must_use]
    pub fn masked(&self) -> String {
        let chars: Vec<char> = self.0.chars().collect();
        let tail: String = if chars.len() >= MIN_LEN_TO_SHOW_TAIL {
            chars[chars.len() - VISIBLE_CHARS..].iter().collect()
        } else {
            String::new()
        };
        format!("{MASK}{tail}")
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { env } => write!(f, "env {env}"),
            Self::File { file } => write!(f, "file {file}"),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Deserializes a table that may contain secrets. A text in its place may be the secret itself, so the error does not quote it.
pub(super) fn deserialize_table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct TableVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_str<E: de::Error>(self, _: &str) -> Result<T, E> {
            Err(E::invalid_type(Unexpected::Other("text"), &self))
        }
    }

    // Not `deserialize_map`: formats then build the error themselves, and quote the value.
    from.deserialize_any(TableVisitor(PhantomData))
}

/// [`deserialize_table`] for an optional table.
pub(super) fn deserialize_optional_table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    struct Inner<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Inner<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            deserialize_table(from).map(Self)
        }
    }

    Option::<Inner<T>>::deserialize(from).map(|table| table.map(|Inner(inner)| inner))
}

impl<'de> Deserialize<'de> for SecretString {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

impl Serialize for SecretSource {
    /// Writes a reference as it is, and a literal masked.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Env { env } => to.collect_map([("env", env)]),
            Self::File { file } => to.collect_map([("file", file)]),
            Self::Text(text) => to.serialize_str(&text.masked()),
        }
    }
}

impl JsonSchema for SecretSource {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret: a reference to where it is found, or the text itself.",
            "anyOf": [
                { "type": "string", "minLength": 1 },
                {
                    "type": "object",
                    "properties": {
                        "env": { "type": "string", "description": "The environment variable it is found in.", "minLength": 1 },
                        "file": { "type": "string", "description": "The file it is found in; spaces and line ends around it are dropped.", "minLength": 1 },
                    },
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_its_end_only_where_that_gives_nothing_away() {
        for (text, expected) in [("", "••••"), ("hunter2", "••••"), ("sixteen-letters-x", "••••")]
        {
            assert_eq!(SecretString::new(text).masked(), expected);
        }
        assert_eq!(SecretString::new("sha256:00112233445566778899aabb1234").masked(), "••••1234");
    }

    #[test]
    fn no_way_of_printing_shows_a_secret() {
        let secret = SecretSource::Text(SecretString::new("correct horse battery staple"));
        let printed = [format!("{secret:?}"), format!("{secret:#?}"), serde_json::to_string(&secret).unwrap()];
        assert!(printed.iter().all(|text| !text.contains("horse")), "{printed:?}");
    }
}
