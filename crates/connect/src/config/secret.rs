//! Secrets of a config: references to a variable or a file, or literal texts.
//!
//! In: `"text"`, `{ env = "NAME" }` or `{ file = "path" }`. Out: a value that prints masked, also in debug output.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};
use toolhub_net::{Secret, SecretError, SecretText};

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
    Text(#[serde(deserialize_with = "deserialize_text")] SecretText),
}

impl SecretSource {
    /// Fetches the secret configured at the key `at`. On failure, reports a problem, which never contains the secret, and returns `None`.
    pub fn fetch(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<SecretText> {
        match self {
            Self::Text(text) => match text.reveal() {
                "" => {
                    diagnostics.report(at, format!("`{at}` is empty"), "set a value, or omit the key");
                    None
                }
                // The output of `masked` was copied back into a config.
                masked if masked.starts_with(SecretText::MASK) => {
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
                value.map(SecretText::new)
            }
            Self::File { file } => match Secret::file(diagnostics.resolve_path(&at.key("file"), file)).load() {
                Ok(text) => Some(SecretText::new(text)),
                Err(error) => {
                    let reason = if let SecretError::File { reason, .. } = error { reason } else { error.to_string() };
                    let message = format!("cannot read {file} (used by `{at}`): {reason}");
                    diagnostics.report(&at.key("file"), message, "check the path and its permissions");
                    None
                }
            },
        }
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

fn deserialize_text<'de, D: Deserializer<'de>>(from: D) -> Result<SecretText, D::Error> {
    String::deserialize(from).map(SecretText::new)
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
    fn no_way_of_printing_shows_a_secret() {
        let secret = SecretSource::Text(SecretText::new("correct horse battery staple"));
        let printed = [format!("{secret:?}"), format!("{secret:#?}"), serde_json::to_string(&secret).unwrap()];
        assert!(printed.iter().all(|text| !text.contains("horse")), "{printed:?}");
    }
}
