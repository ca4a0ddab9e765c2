//! Values that are never shown: given by reference, or in the file where there is no better place.
//!
//! In: `"text"`, `{ env = "NAME" }` or `{ file = "path" }`. Out: a value that prints as dots, also in debug output.

use std::{borrow::Cow, fmt, fs, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

use super::{Diagnostics, KeyPath};

/// Where a secret comes from, as it is written.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SecretSource {
    /// Out of the environment.
    Env {
        /// The variable.
        env: String,
    },
    /// Out of a file; what stands around it is no part of it.
    File {
        /// The file.
        file: String,
    },
    /// As it is.
    Text(SecretString),
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretString(String);

/// What stands in the place of a secret.
const MASK: &str = "••••";
/// So few characters of a secret may be shown.
const VISIBLE_CHARS: usize = 4;
/// A shorter secret shows nothing: four characters would be a good part of it.
const MIN_LEN_TO_SHOW_TAIL: usize = 20;

impl SecretSource {
    /// The secret itself, at the key it stands at. What it is, is told nobody; `None` when it is not there, which the desk is told.
    pub fn fetch(&self, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Option<SecretString> {
        match self {
            Self::Text(text) => match text.reveal() {
                "" => {
                    desk.report(at, format!("`{at}` is empty"), "write something, or leave the key out");
                    None
                }
                // What `masked` wrote is the secret of nobody.
                dots if dots.starts_with(MASK) => {
                    let message =
                        format!("`{at}` has dots in the place of a secret, as whoever shows a config writes them");
                    desk.report(at, message, "write the secret itself, or where it is found: { env = \"NAME\" }");
                    None
                }
                _ => Some(text.clone()),
            },
            Self::Env { env } => {
                let found = desk.env().variable(env);
                if found.is_none() {
                    let (message, help) = (
                        format!("the variable {env} is not set, which `{at}` is read from"),
                        desk.env().unset_hint(env),
                    );
                    desk.report(&at.key("env"), message, help);
                }
                found.map(SecretString)
            }
            Self::File { file } => match fs::read_to_string(desk.resolve_path(&at.key("file"), file)) {
                Ok(text) => Some(SecretString::new(text.trim())),
                Err(error) => {
                    let message = format!("{file} cannot be read, which `{at}` is read from: {error}");
                    desk.report(&at.key("file"), message, "check the path, and who may read it");
                    None
                }
            },
        }
    }
}

impl SecretString {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for whoever sends or compares it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What people may see of it.
    #[must_use]
    pub fn masked(&self) -> String {
        let all: Vec<char> = self.0.chars().collect();
        let tail: String = if all.len() >= MIN_LEN_TO_SHOW_TAIL {
            all[all.len() - VISIBLE_CHARS..].iter().collect()
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

/// Reads a table that may hold secrets. Whoever wrote a text in its place may have written the secret itself, so an error does not
/// repeat it.
pub(super) fn table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Table<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
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

    // Not `deserialize_map`: what reads then words the error itself.
    from.deserialize_any(Table(PhantomData))
}

/// The same of a table that need not be there.
pub(super) fn some_table<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    struct Inner<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Inner<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            table(from).map(Self)
        }
    }

    Option::<Inner<T>>::deserialize(from).map(|found| found.map(|Inner(inner)| inner))
}

impl<'de> Deserialize<'de> for SecretString {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

impl Serialize for SecretSource {
    /// A reference as it is, a text masked.
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
