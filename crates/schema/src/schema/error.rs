//! Why a schema is refused when a tool is registered, and what its author can do about it.

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is too long.
    #[error("the schema has {bytes} bytes, at most {most} are allowed; shorten descriptions or split the tool")]
    TooLarge {
        /// Its length as JSON text.
        bytes: usize,
        /// The longest text allowed.
        most: usize,
    },
    /// The JSON is nested too deeply.
    #[error("the schema is nested deeper than {most} levels; flatten it or move parts to `$defs`")]
    TooDeep {
        /// The deepest nesting allowed.
        most: usize,
    },
    /// A reference leaves the document.
    #[error("`{0}` refers to another document; copy its target into `$defs` and refer to `#/$defs/…`")]
    RemoteRef(String),
    /// A reference leads nowhere.
    #[error("`{0}` refers to nothing in this schema; add its target to `$defs`")]
    UnresolvedRef(String),
    /// A part of the schema wants to be a document of its own.
    #[error("`$id` is allowed only at the root of the schema; remove {0:?}")]
    NestedId(String),
    /// A reference comes back to itself before it reaches a property or an item.
    #[error("`{0}` leads back to itself without going into a property or an item; break the circle")]
    CircularRef(String),
    /// References and combinations multiply into more steps than a check may take.
    #[error(
        "the schema has {what}, at most {most} are allowed; use fewer `$ref`, `allOf`, `anyOf` or `oneOf` inside each other"
    )]
    TooComplex {
        /// What there is too much of.
        what: &'static str,
        /// How much is allowed.
        most: usize,
    },
    /// The arguments would not be an object.
    #[error(
        "the arguments of a tool are an object, but this schema describes {0}; wrap it: {{\"type\": \"object\", \"properties\": {{…}}}}"
    )]
    NotAnObject(String),
    /// A pattern needs a backtracking engine, is too large, or is no pattern at all.
    #[error("the pattern {0:?} is refused; write a smaller one without look-around and back-references")]
    Pattern(String),
    /// The value is no JSON Schema.
    #[error("this is not a valid JSON Schema, at {at}: {why}")]
    Invalid {
        /// Where, as a JSON pointer.
        at: String,
        /// What is wrong there.
        why: String,
    },
    /// A schema given by hand names a property that the type does not have.
    #[error("`{field}` is in the schema given by hand, but the type of the arguments has no such field{hint}")]
    UnknownField {
        /// The field that does not exist.
        field: String,
        /// The closest one that does, as the end of the sentence; may be empty.
        hint: String,
    },
    /// A schema given by hand allows values that the type refuses.
    #[error("`{field}`: `{keyword}` given by hand is {by_hand}, but the type allows only {inferred}")]
    Wider {
        /// The field.
        field: String,
        /// The keyword that disagrees.
        keyword: String,
        /// What was given.
        by_hand: String,
        /// What the type says.
        inferred: String,
    },
    /// A schema given by hand requires a property that nobody describes.
    #[error("`{0}` is required by hand but described nowhere; add it to `properties` or do not require it")]
    UndescribedRequired(String),
    /// A schema given by hand is no schema at this place.
    #[error("`{field}`: {why}")]
    InvalidOverride {
        /// The field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
}
