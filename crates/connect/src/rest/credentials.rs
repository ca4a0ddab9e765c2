//! Puts into a request what shows who it is from.
//!
//! In: what the owner said ([`Auth`]), and a request. Out: the request with a header or a pair more. A token that has to be
//! fetched is fetched once for all who need it, kept until it expires, and fetched again when the service refuses it.

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
use toolhub_net::{Origin, request_target};

use super::{
    Auth, KeyLocation, Secret, Upstreams,
    encode::percent_encode,
    fixed_url,
    plan::Plan,
    request::OutgoingRequest,
    request_error::RequestError,
    send::{self, ReadLimit, SendOptions},
};

/// What shows who requests are from.
#[derive(Debug)]
pub(crate) enum Credentials {
    Static(Auth),
    OAuth2(Arc<TokenCache>, TokenKey),
}

/// What a token is fetched with. Whoever fetches with the same words shares the token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey {
    url: String,
    client_id: String,
    secret: Secret,
    fields: Vec<(String, String)>,
}

/// The token that holds now. The lock is the turn to fetch it: whoever comes meanwhile waits for the same answer.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<CachedToken>);

#[derive(Debug, Default)]
struct CachedToken {
    token: Option<Token>,
    /// Whether the service wants to be told who asks in the body, and not in a header.
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

/// A token of which nobody says how long it holds is kept for so long.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How much of a token's answer is read.
const TOKEN_READ_LIMIT: ReadLimit = ReadLimit { bytes: 256 * 1024, decompressed: 256 * 1024, truncate: false };

impl Credentials {
    pub(crate) fn new(auth: &Auth, upstreams: &Upstreams) -> Self {
        let Auth::ClientCredentials { token_url, client_id, client_secret, scopes, extra_fields: more } = auth else {
            return Self::Static(auth.clone());
        };
        let mut fields = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if !scopes.is_empty() {
            fields.push(("scope".into(), scopes.join(" ")));
        }
        fields.extend(more.iter().cloned());
        let (url, client_id, secret) = (token_url.clone(), client_id.clone(), client_secret.clone());
        let key = TokenKey { url, client_id, secret, fields };
        Self::OAuth2(upstreams.tokens(&key), key)
    }

    /// Adds them to a request; answers what was put there, which must not be told.
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

    /// What is in a request only as a part of something else, and must not be told either.
    pub(crate) fn password(&self) -> Option<Arc<str>> {
        match self {
            Self::Static(Auth::Basic { password, .. }) => password.read().ok(),
            _ => None,
        }
    }

    /// The service has refused them. Whether others can be had.
    pub(crate) async fn invalidate(&self, secret: &str) -> bool {
        match self {
            Self::Static(_) => false,
            Self::OAuth2(tokens, _) => {
                let mut held = tokens.0.lock().await;
                // Somebody else may have fetched another one meanwhile.
                held.token.take_if(|token| &*token.text == secret);
                true
            }
        }
    }
}

fn encode_basic(user: &str, password: &str) -> String {
    BASE64_STANDARD.encode(format!("{user}:{password}"))
}

/// A header that is not shown by whoever prints headers, and that no redirect takes elsewhere.
pub(crate) fn insert_sensitive(headers: &mut HeaderMap, name: HeaderName, text: &str) -> Result<(), RequestError> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| unsendable())?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn unsendable() -> RequestError {
    RequestError::Credentials("what shows who the request is from cannot stand in a header".into())
}

impl TokenCache {
    async fn current(&self, key: &TokenKey, plan: &Plan) -> Result<Arc<str>, RequestError> {
        let mut held = self.0.lock().await;
        if let Some(token) = held.token.as_ref().filter(|token| Instant::now() < token.expires_at) {
            return Ok(token.text.clone());
        }
        let token = key.fetch(plan, &mut held.client_in_body).await?;
        held.token = Some(token.clone());
        Ok(token.text)
    }
}

/// What a service answers that gives out tokens.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// A number of seconds; some services write it as a text.
    #[serde(default)]
    expires_in: Value,
}

impl TokenResponse {
    /// How long the token holds, if that is said in a way that can be understood.
    fn lifetime(&self) -> Option<Duration> {
        let seconds = self.expires_in.as_f64().or_else(|| self.expires_in.as_str()?.trim().parse().ok())?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl TokenKey {
    async fn fetch(&self, plan: &Plan, in_body: &mut bool) -> Result<Token, RequestError> {
        let wrong =
            |why: String| RequestError::Credentials(format!("no token from {}: {why}", without_query(&self.url)));
        let (origin, url) = fixed_url::parse(&self.url).map_err(&wrong)?;
        let secret = self.secret.read().map_err(|error| wrong(error.to_string()))?;
        let first = self.token_request(request_target(&url), &secret, *in_body)?;
        let (mut status, mut body) = send_auxiliary(plan, &origin, &first, TOKEN_READ_LIMIT).await?;
        // Services are free to want it in one place or the other, and refuse it in either of two ways.
        if matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
            let second = self.token_request(request_target(&url), &secret, !*in_body)?;
            let (again, answer) = send_auxiliary(plan, &origin, &second, TOKEN_READ_LIMIT).await?;
            if again.is_success() {
                (status, body, *in_body) = (again, answer, !*in_body);
            }
        }
        if !status.is_success() {
            return Err(wrong(format!("it answers {status}")));
        }
        let given: TokenResponse =
            serde_json::from_slice(&body).map_err(|_| wrong("what it answers is no token".into()))?;
        let lasts = given.lifetime().unwrap_or(DEFAULT_TOKEN_LIFETIME);
        // Fetched anew a little before its end, so that none expires on its way.
        let spare = (lasts / 10).min(Duration::from_secs(30));
        let until =
            Instant::now().checked_add(lasts - spare).unwrap_or_else(|| Instant::now() + DEFAULT_TOKEN_LIFETIME);
        Ok(Token { text: Arc::from(given.access_token), expires_at: until })
    }

    /// The request for a token. Who asks is told in a header, as the standard would have it, or in the body.
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
            // The standard wants both parts encoded as in a form before they are put together.
            let pair = encode_basic(&percent_encode(&self.client_id), &percent_encode(secret));
            insert_sensitive(&mut headers, AUTHORIZATION, &format!("Basic {pair}"))?;
        }
        Ok(OutgoingRequest { method: Method::POST, target, headers, body: Bytes::from(fields.join("&")) })
    }
}

/// An address without its query, which may hold secrets.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// A request that is not the tool's own: for a token, or for a sign of health.
pub(crate) async fn send_auxiliary(
    plan: &Plan,
    origin: &Origin,
    outgoing: &OutgoingRequest,
    limit: ReadLimit,
) -> Result<(StatusCode, Vec<u8>), RequestError> {
    let pool = plan.upstreams.pool(origin, &plan.pool_options);
    let left = std::sync::atomic::AtomicBool::new(false);
    let options = SendOptions { pool: &pool, read_timeout: plan.connection.read_timeout, sent: &left, call: None };
    let opened = send::send_request(&options, outgoing, None).await?;
    let status = opened.status;
    Ok((status, opened.read(limit).await?))
}
