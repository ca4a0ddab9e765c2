//! One target of alerts that is reached by HTTP.
//!
//! In: an address, a format and secrets; then messages. Out: requests and their answers. Redirects are not followed, because they may
//! lead anywhere; the answer is read up to a limit.

use std::time::Duration;

use futures_core::future::BoxFuture;
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_NAME};
use toolhub_core::{
    alerts::{AlertChannel, AlertMessage, AlertResponse, AlertSendError},
    clock::Timestamp,
    digest,
};
use toolhub_net::{
    AddressPolicy, Bytes, Method, Origin, PoolOptions, Pools, Request, Response, SecretText, SendError, USER_AGENT,
    Url, request_target,
};

use super::{Format, SigningSecret, SigningSecretError, alertmanager, payload, signature, slack};
use crate::rest::{fixed_url, status_error::retry_after};

/// How long a target may send nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const MAX_ANSWER: usize = 16 * 1024;
/// How much of its first line is shown, in bytes.
const MAX_LINE: usize = 200;
/// Maximum delay that a target may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// A webhook that receives alerts.
#[derive(Debug, Clone)]
#[must_use = "a webhook does nothing until it is the channel of an alert target"]
pub struct Webhook {
    format: Format,
    url: SecretText,
    origin: Origin,
    secrets: Vec<SigningSecret>,
    allow_hosts: Vec<String>,
    pools: Pools,
}

/// Why a webhook cannot be used. Contains neither address nor secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The address is not one of HTTP.
    #[error("the URL {0}")]
    Url(String),
    /// A secret cannot sign.
    #[error(transparent)]
    Secret(#[from] SigningSecretError),
}

impl Webhook {
    /// A webhook that receives signed JSON. The secret is `whsec_` and base64.
    ///
    /// # Errors
    /// When the address or the secret is invalid.
    pub fn json(url: &str, secret: &str) -> Result<Self, WebhookError> {
        Self::new(Format::Json, url)?.signed_with(secret)
    }

    /// An incoming webhook of Slack.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn slack(url: &str) -> Result<Self, WebhookError> {
        Self::new(Format::Slack, url)
    }

    /// The address at which an Alertmanager takes alerts: `…/api/v2/alerts`.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn alertmanager(url: &str) -> Result<Self, WebhookError> {
        Self::new(Format::Alertmanager, url)
    }

    /// A webhook of a format, without signature.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn new(format: Format, url: &str) -> Result<Self, WebhookError> {
        let (origin, _) = fixed_url::parse(url).map_err(WebhookError::Url)?;
        let (secrets, allow_hosts) = (Vec::new(), Vec::new());
        Ok(Self { format, url: SecretText::new(url), origin, secrets, allow_hosts, pools: Pools::default() })
    }

    /// Signs messages with this secret too. With two, receivers accept either during a rotation.
    ///
    /// # Errors
    /// When it cannot sign.
    pub fn signed_with(mut self, secret: &str) -> Result<Self, WebhookError> {
        self.secrets.push(secret.parse()?);
        Ok(self)
    }

    /// Allows a host with a private or local address.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allow_hosts.push(host.into());
        self
    }

    /// Its host, and the range that makes the address guard refuse it, as far as that is known without a lookup.
    #[must_use]
    pub fn refused_host(&self) -> Option<(String, &'static str)> {
        let url = Url::parse(self.url.reveal()).ok()?;
        let range = self.address_policy().refusal_without_lookup(&url)?;
        Some((self.origin.host.clone(), range))
    }

    fn address_policy(&self) -> AddressPolicy {
        AddressPolicy::PublicOrHosts(self.allow_hosts.clone())
    }

    fn request(&self, message: &AlertMessage, at: Timestamp) -> Result<Request<Bytes>, AlertSendError> {
        let body = match self.format {
            Format::Json => payload::body(message),
            Format::Slack => slack::body(message),
            Format::Alertmanager => alertmanager::body(message),
        };
        let body = body.to_string();
        let url = Url::parse(self.url.reveal()).map_err(|_| AlertSendError("the URL is invalid".into()))?;
        let seconds = at.millis().div_euclid(1000);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(request_target(&url))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT_NAME, USER_AGENT)
            .header("webhook-id", message.id.as_str())
            .header("webhook-timestamp", seconds);
        if !self.secrets.is_empty() {
            let signature = signature::sign(&self.secrets, &message.id, seconds, body.as_bytes());
            request = request.header("webhook-signature", signature);
        }
        request.body(body.into()).map_err(|_| AlertSendError("the request cannot be written".into()))
    }

    async fn post(&self, request: Request<Bytes>, at: Timestamp) -> Result<AlertResponse, SendError> {
        let options = PoolOptions {
            connect_timeout: CONNECT_TIMEOUT,
            write_timeout: READ_TIMEOUT,
            address_policy: self.address_policy(),
            // The address guard cannot check where a proxy connects to.
            proxy: None,
            ..PoolOptions::default()
        };
        let pool = self.pools.pool(&self.origin, &options);
        let mut lease = pool.lease().await?;
        let response = loop {
            match lease.send(request.clone(), READ_TIMEOUT).await {
                Ok(response) => break response,
                // The message has an id, so the target recognizes a second one.
                Err(failed) if failed.may_resend(&Method::PUT) => lease = pool.dial().await?,
                Err(failed) => return Err(failed.error),
            }
        };
        let retry_after = retry_after(&response.headers, at).map(|delay| delay.min(MAX_RETRY_AFTER));
        Ok(AlertResponse { status: response.status.as_u16(), first_line: read_first_line(response).await, retry_after })
    }
}

/// The first line of an answer, without characters that a terminal interprets. A body that breaks off has the line it has.
async fn read_first_line(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_ANSWER {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let end = line.floor_char_boundary(MAX_LINE);
    line[..end].chars().filter(|char| !char.is_control()).collect()
}

impl AlertChannel for Webhook {
    fn format(&self) -> &'static str {
        self.format.as_str()
    }

    fn host(&self) -> String {
        self.origin.to_string()
    }

    fn fingerprint(&self) -> String {
        digest::sha256_hex([self.url.reveal().as_bytes()])
    }

    fn send<'a>(
        &'a self,
        message: &'a AlertMessage,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<AlertResponse, AlertSendError>> {
        Box::pin(async move {
            let request = self.request(message, at)?;
            self.post(request, at).await.map_err(|error| AlertSendError(error.to_string()))
        })
    }
}
