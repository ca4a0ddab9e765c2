//! Tools from an OpenAPI document: one for each operation.
