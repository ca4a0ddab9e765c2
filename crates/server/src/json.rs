//! Answers in JSON.
//!
//! In: anything that can be serialized. Out: a response. All are written into the same kind of buffer as events and rows are, so
//! that a type is compiled for one writer.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// An answer in JSON.
#[derive(Debug, Clone)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json_response(serde_json::to_vec(&self.0))
    }
}

fn json_response(json: serde_json::Result<Vec<u8>>) -> Response {
    match json {
        Ok(json) => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
