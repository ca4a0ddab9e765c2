//! Which models a server has, as far as it says. No model is asked, so it costs nothing.
//!
//! In: the client of a provider. Out: names, or why there is no answer. There is one try: whoever looks wants to know how it stands.

use std::time::Duration;

use serde_json::Value;
use toolhub_net::{Bytes, Method};

use super::{
    ModelError, ModelFault,
    attempt_error::AttemptError,
    exchange::{self, Dialect},
    provider_client::{ProviderClient, SettingsError},
};

/// How long a server may take to say it.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The names; none where the server keeps no list.
pub(super) async fn list_models<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
) -> Result<Option<Vec<String>>, ModelError> {
    let time = client.request_timeout.min(LIST_TIMEOUT);
    match tokio::time::timeout(time, fetch_models(dialect, client)).await {
        Ok(found) => found.map_err(|failed| failed.error),
        Err(_) => {
            Err(ModelError::new(ModelFault::Timeout, format!("the model's provider did not answer within {time:?}")))
        }
    }
}

async fn fetch_models<D: Dialect>(dialect: &D, client: &ProviderClient) -> Result<Option<Vec<String>>, AttemptError> {
    let wrong = |error: SettingsError| AttemptError::permanent(ModelFault::Refused, error.to_string());
    let request = exchange::build_request(dialect, client, Method::GET, &["models"], Bytes::new()).map_err(wrong)?;
    let answer = match client.send(request).await {
        // Somebody is there who has no such page.
        Err(failed) if matches!(failed.error.status, Some(404 | 405 | 501)) => return Ok(None),
        answer => answer?,
    };
    let list: Value = serde_json::from_slice(&client.read_full_body(answer).await?).unwrap_or_default();
    let models = list.get("data").and_then(Value::as_array);
    Ok(models.map(|models| models.iter().filter_map(|one| one["id"].as_str().map(String::from)).collect()))
}
