//! A document from an address, as text.
//!
//! In: an address that somebody typed. Out: what is there, up to a size.

use std::time::Duration;

use super::remote::cryptography;
use crate::failure::Failure;

/// How long it may take in all.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a document may be.
const LARGEST: usize = 64 << 20;

/// Fetches it.
///
/// # Errors
/// When it is not there, or is no text, or too long.
pub(crate) async fn fetch(url: &str) -> Result<String, Failure> {
    let shown = without_secrets(url);
    let failed = |why: String| Failure::usage(format!("{shown} cannot be fetched: {why}")).help("check the address");
    cryptography();
    let client =
        reqwest::Client::builder().timeout(PATIENCE).user_agent(concat!("toolhub/", env!("CARGO_PKG_VERSION")));
    let client = client.build().map_err(|error| failed(error.to_string()))?;
    let answer = client.get(url).send().await.map_err(|error| failed(error.without_url().to_string()))?;
    if !answer.status().is_success() {
        return Err(failed(format!("the server answered {}", answer.status())));
    }
    let (mut answer, mut bytes) = (answer, Vec::new());
    while let Some(piece) = answer.chunk().await.map_err(|error| failed(error.without_url().to_string()))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LARGEST {
            return Err(failed("it is longer than 64 MiB".into()));
        }
    }
    String::from_utf8(bytes).map_err(|_| failed("it is no UTF-8 text".into()))
}

/// An address without what may be a secret in it: user, password, query.
pub(crate) fn without_secrets(url: &str) -> String {
    let Ok(mut address) = reqwest::Url::parse(url) else { return "the address".into() };
    // Only an address without a host can refuse, and that has neither.
    let _ = (address.set_username(""), address.set_password(None));
    address.set_query(None);
    address.set_fragment(None);
    address.into()
}
