//! Decides where a request goes when the service points elsewhere.
//!
//! In: a request that was sent, and the head of its answer. Out: the next request, nothing where there is none to be made, or why it
//! may not be made. What shows who we are stays on the origin it was meant for.

use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION},
};

use toolhub_net::{Origin, Url, request_target};

use super::{Redirects, plan::Plan, request::OutgoingRequest, request_error::RequestError};

/// How often a call is sent on.
const MAX_REDIRECTS: usize = 5;

/// A request to one origin.
pub(crate) struct Hop {
    pub(crate) origin: Origin,
    pub(crate) outgoing: OutgoingRequest,
    /// How often it was sent on.
    pub(crate) redirect_count: usize,
    /// Whether something was asked for before it that may have been done: the service only points to what came of it.
    pub(crate) after_side_effect: bool,
}

/// The headers that mean the same everywhere and say nothing of us, unless somebody hides a secret in them.
const CROSS_ORIGIN_HEADERS: [&str; 6] =
    ["traceparent", "tracestate", "accept", "accept-encoding", "user-agent", "content-type"];

pub(crate) fn next_hop(
    plan: &Plan,
    hop: &Hop,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Hop>, RequestError> {
    let sent_on = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let (true, Some(location)) = (sent_on, location) else { return Ok(None) };
    let refused = |why: String| RequestError::Redirect(format!("{} answers {status} and {why}", hop.origin));
    if plan.redirects == Redirects::Never {
        return Err(refused("redirects are not followed (`redirects`)".into()));
    }
    if hop.redirect_count >= MAX_REDIRECTS {
        return Err(refused(format!("it was sent on {MAX_REDIRECTS} times already")));
    }
    let here = Url::parse(&format!("{}{}", hop.origin, hop.outgoing.target));
    let there = here.and_then(|here| here.join(location)).map_err(|_| refused("names no address".into()))?;
    let origin = Origin::from_url(&there)
        .ok_or_else(|| refused(format!("points to `{}:`, not to http or https", there.scheme())))?;
    if hop.origin.https && !origin.https {
        return Err(refused("points from https to http".into()));
    }
    let named = match &plan.redirects {
        Redirects::To(hosts) => origin.matches_any(hosts),
        Redirects::SameHost | Redirects::Never => false,
    };
    if origin.host != plan.origin.host && !named {
        return Err(refused(format!("points to {origin}; name its host in `redirects` if that is right")));
    }
    let mut outgoing = hop.outgoing.clone();
    outgoing.target = request_target(&there);
    // The standard lets most of them turn a POST into a GET; all that is in use does.
    let becomes_get = status == StatusCode::SEE_OTHER && outgoing.method != Method::HEAD
        || matches!(status.as_u16(), 301 | 302) && outgoing.method == Method::POST;
    let behind = hop.after_side_effect || becomes_get && !hop.outgoing.method.is_safe();
    if becomes_get {
        outgoing.method = Method::GET;
        outgoing.body = Bytes::new();
        outgoing.headers.remove(CONTENT_TYPE);
    }
    if origin != hop.origin {
        let secret = |name: &HeaderName| outgoing.headers.get_all(name).iter().any(HeaderValue::is_sensitive);
        let kept = |name: &HeaderName| CROSS_ORIGIN_HEADERS.contains(&name.as_str()) && !secret(name);
        let names: Vec<HeaderName> = outgoing.headers.keys().filter(|name| !kept(name)).cloned().collect();
        names.iter().for_each(|name| drop(outgoing.headers.remove(name)));
    }
    Ok(Some(Hop { origin, outgoing, redirect_count: hop.redirect_count + 1, after_side_effect: behind }))
}
