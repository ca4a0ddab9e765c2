//! The address of a server, with its connection pool and credentials.
//!
//! In: the settings of a request ([`Rest`]), whose method and body are not used. Out: responses to requests that carry the
//! credentials. The rules of REST tools apply: address guard, TLS, connect and write timeouts, one renewal of a refused token. No
//! redirect is followed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use serde_json::Map;

use super::HttpStartError;
use crate::{
    command::ProgramSecrets,
    rest::{HttpError, OpenResponse, OutgoingRequest, Plan, Rest, SendOptions, add_secret_headers, send_request},
    secret_mask::SecretMask,
};

pub(super) struct Address {
    plan: Plan,
    /// What the requests carry. A token that is fetched later is not among them.
    pub(super) secrets: Arc<ProgramSecrets>,
}

impl Address {
    /// Reads the settings, and the secrets they name. Fetches a token if they ask for one.
    pub(super) async fn new(rest: &Rest) -> Result<Self, HttpStartError> {
        let plan = Plan::new(rest).map_err(HttpStartError::Settings)?;
        let mut address = Self { plan, secrets: Arc::default() };
        let values = address.secret_values().await.map_err(HttpStartError::Credentials)?;
        let mask = Arc::new(SecretMask::new(values.iter().map(|value| &**value)));
        address.secrets = Arc::new(ProgramSecrets { all: mask.clone(), named: mask });
        Ok(address)
    }

    pub(super) fn origin(&self) -> String {
        self.plan.origin.to_string()
    }

    /// Path and query.
    pub(super) fn target(&self) -> Result<String, HttpError> {
        self.blank_request().map(|request| request.target)
    }

    /// Sends one request with the credentials. A token that the server refuses is fetched again, once.
    pub(super) async fn send(
        &self,
        method: Method,
        body: Bytes,
        headers: HeaderMap,
        sent: &AtomicBool,
    ) -> Result<OpenResponse, HttpError> {
        let plan = &self.plan;
        let mut renewed = false;
        loop {
            let mut outgoing = self.blank_request()?;
            outgoing.method = method.clone();
            outgoing.body = body.clone();
            outgoing.headers.insert(USER_AGENT, toolhub_net::USER_AGENT);
            outgoing.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
            outgoing.headers.remove(CONTENT_TYPE);
            if method == Method::POST {
                outgoing.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            outgoing.headers.extend(headers.clone());
            add_secret_headers(plan, &mut outgoing)?;
            let secret = match &plan.credentials {
                Some(credentials) => Some((credentials, credentials.apply(&mut outgoing, plan).await?)),
                None => None,
            };
            // A call may take as long as its own timeout allows, so there is no read timeout.
            let options = SendOptions { pool: &plan.pool, read_timeout: Duration::MAX, sent, call: None };
            let response = send_request(&options, &outgoing, None).await?;
            if let Some((credentials, secret)) = secret.filter(|_| !renewed)
                && response.status == StatusCode::UNAUTHORIZED
                && credentials.invalidate(&secret).await
            {
                renewed = true;
                drop(response.discard().await);
                sent.store(false, Ordering::Release);
                continue;
            }
            return Ok(response);
        }
    }

    /// Whether the address accepts connections.
    pub(super) async fn check(&self) -> Result<(), String> {
        self.plan.pool.dial().await.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn secret_values(&self) -> Result<Vec<Arc<str>>, HttpError> {
        let mut outgoing = self.blank_request()?;
        let mut values = add_secret_headers(&self.plan, &mut outgoing)?;
        values.extend(self.plan.secret_texts.iter().cloned());
        if let Some(credentials) = &self.plan.credentials {
            values.push(credentials.apply(&mut outgoing, &self.plan).await?);
            values.extend(credentials.password());
        }
        Ok(values)
    }

    fn blank_request(&self) -> Result<OutgoingRequest, HttpError> {
        self.plan.template.fill(&Map::new()).map_err(|error| HttpError::Broken(error.0))
    }
}
