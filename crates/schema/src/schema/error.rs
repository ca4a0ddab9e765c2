//! Why a schema is refused when a tool is registered, and what its author can do about it.

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too large.
    #[error("the schema has {bytes} bytes, at most {limit} are allowed; shorten descriptions or split the tool")]
    TooLarge {
        /// Its size as JSON text.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// The JSON is nested too deeply.
    #[error("the schema is nested deeper than {limit} levels; flatten it or move parts to `$defs`")]
    TooDeep {
        /// The maximum depth.
        limit: usize,
    },
    /// A reference leaves the document.
    #[error("`{0}` refers to another document; copy its target into `$defs` and refer to `#/$defs/…`")]
    RemoteRef(String),
    /// A reference has no target.
    #[error("`{0}` refers to nothing in this schema; add its target to `$defs`")]
    UnresolvedRef(String),
    /// A subschema has its own `$id`.
    #[error("`$id` is allowed only at the root of the schema; remove {0:?}")]
    NestedId(String),
    /// A reference refers to itself without passing through a property or an item.
    #[error("`{0}` is a circular reference that passes through no property or item; break the cycle")]
    CircularRef(String),
    /// References and combinations multiply into more steps than a validation may take.
    #[error("the schema has {what}, at most {limit} are allowed; use fewer nested `$ref`, `allOf`, `anyOf` or `oneOf`")]
    TooComplex {
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The schema does not describe an object.
    #[error(
        "the arguments of a tool must be an object, but this schema describes {0}; wrap it: {{\"type\": \"object\", \"properties\": {{…}}}}"
    )]
    NotAnObject(String),
    /// A pattern needs a backtracking engine, is too large, or is not a valid regular expression.
    #[error("the pattern {0:?} is refused; write a smaller one without look-around and back-references")]
    Pattern(String),
    /// The value is not a valid JSON Schema.
    #[error("this is not a valid JSON Schema, at {pointer}: {reason}")]
    Invalid {
        /// The JSON pointer to the problem.
        pointer: String,
        /// The reason.
        reason: String,
    },
    /// A schema given by hand names a property that the type does not have.
    #[error("`{field}` is in the schema given by hand, but the type of the arguments has no such field{hint}")]
    UnknownField {
        /// The field that does not exist.
        field: String,
        /// A suggestion that completes the sentence; may be empty.
        hint: String,
    },
    /// A schema given by hand allows values that the type does not accept.
    #[error("`{field}`: `{keyword}` given by hand is {by_hand}, but the type allows only {inferred}")]
    Wider {
        /// The field.
        field: String,
        /// The conflicting keyword.
        keyword: String,
        /// The value given by hand.
        by_hand: String,
        /// What the type allows.
        inferred: String,
    },
    /// A schema given by hand requires a property that is not described.
    #[error(
        "`{0}` is required by the schema given by hand but not described; add it to `properties` or do not require it"
    )]
    UndescribedRequired(String),
    /// A schema given by hand is invalid at this field.
    #[error("`{field}`: {reason}")]
    InvalidOverride {
        /// The field.
        field: String,
        /// The reason.
        reason: String,
    },
}
