//! The JSON Schema of a type that is written as one text, said by hand: what it is, and what the text looks like.

/// `text_schema! { Type "what it is" { "pattern": "…" } }`
#[macro_export]
macro_rules! text_schema {
    ($type:ident $what:literal { $($rule:tt)* }) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $what, $($rule)* })
            }
        }
    };
}
