//! Adds credentials to requests, and caches OAuth 2 tokens.
//!
//! In: the authentication settings ([`Auth`]), and a request. Out: the request with a header, cookie or query parameter added. Tools
//! with the same credentials share one token, which is cached until it expires and fetched again if the service refuses it.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use toolhub_core::json::{self, JsonLimits};
use toolhub_net::{Origin, request_target};

use super::{
    Auth, KeyLocation, Secret, Upstreams, fixed_url,
    plan::Plan,
    request::OutgoingRequest,
    request_error::RequestError,
    send::{self, ReadLimit, SendOptions},
};
use crate::percent_encode::percent_encode;

/// Credentials of the requests of a tool.
#[derive(Debug)]
pub(crate) enum Credentials {
    Static(Auth),
    OAuth2(Arc<TokenCache>, TokenKey),
}

/// The parameters of a token request. Equal keys share a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey {
    url: String,
    client_id: String,
    secret: Secret,
    fields: Vec<(String, String)>,
}

/// The current token. The lock is held while it is fetched, so that concurrent callers wait for the same response (single flight).
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<CachedToken>);

#[derive(Debug, Default)]
struct CachedToken {
    token: Option<Token>,
    /// Whether the service expects the client credentials in the body instead of a header.
    client_in_body: bool,
}

#[derive(Clone)]
struct Token {
    text: Arc<str>,
    expires_at: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(••••)")
    }
}

/// Lifetime of a token without `expires_in`.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Maximum size of a token response.
const TOKEN_READ_LIMIT: ReadLimit = ReadLimit { bytes: 256 * 1024, decompressed: 256 * 1024, truncate: false };

impl Credentials {
    pub(crate) fn new(auth: &Auth, upstreams: &Upstreams) -> Self {
        let Auth::ClientCredentials { token_url, client_id, client_secret, scopes, extra_fields } = auth else {
            return Self::Static(auth.clone());
        };
        let mut fields = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if !scopes.is_empty() {
            fields.push(("scope".into(), scopes.join(" ")));
        }
        fields.extend(extra_fields.iter().cloned());
        let (url, client_id, secret) = (token_url.clone(), client_id.clone(), client_secret.clone());
        let key = TokenKey { url, client_id, secret, fields };
        Self::OAuth2(upstreams.tokens(&key), key)
    }

    /// Adds them to a request; returns the secret that was added, which must be redacted.
    pub(crate) async fn apply(&self, outgoing: &mut OutgoingRequest, plan: &Plan) -> Result<Arc<str>, RequestError> {
        let read = |secret: &Secret| secret.read().map_err(|error| RequestError::Credentials(error.to_string()));
        match self {
            Self::OAuth2(tokens, key) => {
                let token = tokens.current(key, plan).await?;
                insert_sensitive(&mut outgoing.headers, AUTHORIZATION, &format!("Bearer {token}"))?;
                Ok(token)
            }
            Self::Static(auth) => {
                let secret = read(auth.secret())?;
                match auth {
                    Auth::Basic { user, .. } => {
                        let pair = encode_basic(user, &secret);
                        insert_sensitive(&mut outgoing.headers, AUTHORIZATION, &format!("Basic {pair}"))?;
                        return Ok(Arc::from(pair));
                    }
                    Auth::ApiKey { location: KeyLocation::Query, name, .. } => outgoing.add_query(name, &secret),
                    Auth::ApiKey { location: KeyLocation::Cookie, name, .. } => {
                        outgoing.add_cookies(&format!("{}={}", percent_encode(name), percent_encode(&secret)));
                    }
                    Auth::ApiKey { location: KeyLocation::Header, name, .. } => {
                        let name = super::parse_header_name(name).map_err(|()| unsendable())?;
                        insert_sensitive(&mut outgoing.headers, name, &secret)?;
                    }
                    Auth::Bearer(_) | Auth::ClientCredentials { .. } => {
                        insert_sensitive(&mut outgoing.headers, AUTHORIZATION, &format!("Bearer {secret}"))?;
                    }
                }
                Ok(secret)
            }
        }
    }

    /// A secret that a request carries only in encoded form, and that must be redacted too.
    pub(crate) fn password(&self) -> Option<Arc<str>> {
        match self {
            Self::Static(Auth::Basic { password, .. }) => password.read().ok(),
            _ => None,
        }
    }

    /// Drops a token that the service refused. Returns whether new credentials can be fetched.
    pub(crate) async fn invalidate(&self, secret: &str) -> bool {
        match self {
            Self::Static(_) => false,
            Self::OAuth2(tokens, _) => {
                let mut cached = tokens.0.lock().await;
                // Another call may have fetched a new token meanwhile.
                cached.token.take_if(|token| &*token.text == secret);
                true
            }
        }
    }
}

fn encode_basic(user: &str, password: &str) -> String {
    BASE64_STANDARD.encode(format!("{user}:{password}"))
}

/// Inserts a header marked as sensitive: debug output hides it, and cross-origin redirects drop it.
pub(crate) fn insert_sensitive(headers: &mut HeaderMap, name: HeaderName, text: &str) -> Result<(), RequestError> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unsendable())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn unsendable() -> RequestError {
    RequestError::Credentials("the credentials contain characters that are not allowed in a header".into())
}

impl TokenCache {
    async fn current(&self, key: &TokenKey, plan: &Plan) -> Result<Arc<str>, RequestError> {
        let mut cached = self.0.lock().await;
        if let Some(token) = cached.token.as_ref().filter(|token| Instant::now() < token.expires_at) {
            return Ok(token.text.clone());
        }
        let token = key.fetch(plan, &mut cached.client_in_body).await?;
        cached.token = Some(token.clone());
        Ok(token.text)
    }
}

/// The response of a token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Lifetime in seconds; some services write it as a string.
    #[serde(default)]
    expires_in: Value,
}

impl TokenResponse {
    /// The lifetime of the token, if it is given and valid.
    fn lifetime(&self) -> Option<Duration> {
        let seconds = self.expires_in.as_f64().or_else(|| self.expires_in.as_str()?.trim().parse().ok())?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl TokenKey {
    async fn fetch(&self, plan: &Plan, in_body: &mut bool) -> Result<Token, RequestError> {
        let failed =
            |reason: String| RequestError::Credentials(format!("no token from {}: {reason}", without_query(&self.url)));
        let (origin, url) = fixed_url::parse(&self.url).map_err(&failed)?;
        let secret = self.secret.read().map_err(|error| failed(error.to_string()))?;
        let first = self.token_request(request_target(&url), &secret, *in_body)?;
        let (mut status, mut body) = send_auxiliary(plan, &origin, &first, TOKEN_READ_LIMIT).await?;
        // Services may expect the client credentials in a header or in the body (RFC 6749), and refuse with 400 or 401.
        if matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
            let second = self.token_request(request_target(&url), &secret, !*in_body)?;
            let (second_status, second_body) = send_auxiliary(plan, &origin, &second, TOKEN_READ_LIMIT).await?;
            if second_status.is_success() {
                (status, body, *in_body) = (second_status, second_body, !*in_body);
            }
        }
        if !status.is_success() {
            return Err(failed(format!("the token endpoint responded {status}")));
        }
        let response: TokenResponse =
            json::parse(&body, JsonLimits::default()).map_err(|_| failed("the response contains no token".into()))?;
        let lifetime = response.lifetime().unwrap_or(DEFAULT_TOKEN_LIFETIME);
        // Refreshed a little early, so that no token expires in transit.
        let margin = (lifetime / 10).min(Duration::from_secs(30));
        let expires_at =
            Instant::now().checked_add(lifetime - margin).unwrap_or_else(|| Instant::now() + DEFAULT_TOKEN_LIFETIME);
        Ok(Token { text: Arc::from(response.access_token), expires_at })
    }

    /// The token request, with the client credentials in a header, as the standard prefers, or in the body.
    fn token_request(&self, target: String, secret: &str, in_body: bool) -> Result<OutgoingRequest, RequestError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let field = |(name, value): (&str, &str)| format!("{}={}", percent_encode(name), percent_encode(value));
        let mut fields: Vec<String> =
            self.fields.iter().map(|(name, value)| field((name.as_str(), value.as_str()))).collect();
        if in_body {
            fields.extend([("client_id", self.client_id.as_str()), ("client_secret", secret)].map(field));
        } else {
            // Both parts must be form-encoded before they are joined (RFC 6749).
            let pair = encode_basic(&percent_encode(&self.client_id), &percent_encode(secret));
            insert_sensitive(&mut headers, AUTHORIZATION, &format!("Basic {pair}"))?;
        }
        Ok(OutgoingRequest { method: Method::POST, target, headers, body: Bytes::from(fields.join("&")) })
    }
}

/// A URL without its query, which may contain secrets.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Sends a request that is not the tool's own: for a token, or a health check.
pub(crate) async fn send_auxiliary(
    plan: &Plan,
    origin: &Origin,
    outgoing: &OutgoingRequest,
    limit: ReadLimit,
) -> Result<(StatusCode, Vec<u8>), RequestError> {
    let pool = plan.upstreams.pool(origin, &plan.pool_options);
    let sent = std::sync::atomic::AtomicBool::new(false);
    let options = SendOptions { pool: &pool, read_timeout: plan.connection.read_timeout, sent: &sent, call: None };
    let response = send::send_request(&options, outgoing, None).await?;
    let status = response.status;
    Ok((status, response.read(limit).await?))
}
