//! Macro for a hand-written JSON Schema of a type that serializes as a string.

/// Implements `JsonSchema`: `text_schema! { Type "description" { "pattern": "…" } }`
#[macro_export]
macro_rules! text_schema {
    ($type:ident $description:literal { $($keyword:tt)* }) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $description, $($keyword)* })
            }
        }
    };
}
