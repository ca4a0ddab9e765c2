//! JSON responses.
//!
//! In: any serializable value. Out: a response. All are written into a `Vec<u8>`, like events and rows, so that each
//! type's serializer is compiled for one writer only.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

/// A JSON response.
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
