//! Lists the models of a provider (`GET /models`), which costs no tokens.
//!
//! In: the client of a provider. Out: names, or an error. There are no retries: the result shows the current state of
//! the provider.

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{
    json::{self, JsonLimits},
    offload,
};
use toolhub_net::{Bytes, Method};

use super::{
    ModelError, ModelFault,
    attempt_error::AttemptError,
    exchange::{self, Dialect},
    provider_client::{ProviderClient, SettingsError},
};

/// Timeout of the request.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The names; `None` if the server has no such list.
pub(super) async fn list_models<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
) -> Result<Option<Vec<String>>, ModelError> {
    let time = client.request_timeout.min(LIST_TIMEOUT);
    match tokio::time::timeout(time, fetch_models(dialect, client)).await {
        Ok(found) => found.map_err(|failure| failure.error),
        Err(_) => {
            Err(ModelError::new(ModelFault::Timeout, format!("the model provider did not answer within {time:?}")))
        }
    }
}

async fn fetch_models<D: Dialect>(dialect: &D, client: &ProviderClient) -> Result<Option<Vec<String>>, AttemptError> {
    let invalid = |error: SettingsError| AttemptError::permanent(ModelFault::Refused, error.to_string());
    let request = exchange::build_request(dialect, client, Method::GET, &["models"], Bytes::new()).map_err(invalid)?;
    let response = match client.send(request).await {
        // The server is reachable, but does not implement the endpoint.
        Err(failure) if matches!(failure.error.status, Some(404 | 405 | 501)) => return Ok(None),
        response => response?,
    };
    let body = client.read_full_body(response).await?;
    let parsed = offload::run(body.len(), move || json::parse::<Value>(&body, JsonLimits::default())).await;
    let list = parsed.unwrap_or_default();
    let models = list.get("data").and_then(Value::as_array);
    Ok(models.map(|models| models.iter().filter_map(|model| model["id"].as_str().map(String::from)).collect()))
}
