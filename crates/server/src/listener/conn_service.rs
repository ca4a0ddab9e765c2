//! The hyper service of one connection: passes its requests to the router.
//!
//! In: requests as hyper reads them. Out: responses for hyper to write. Runs `origin_check` before any route and wraps
//! the body with its limits.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, header},
};
use futures_core::future::BoxFuture;
use hyper::body::Incoming;
use tower::Service;

use super::body::{LimitedBody, ResponseBody};
use crate::{
    app::App,
    auth,
    connections::{ConnState, Connections, StreamHolder},
    request_info::{REQUEST_ID, RequestInfo},
};

/// The hyper service of one connection.
#[derive(Clone)]
pub(crate) struct ConnService {
    pub(crate) router: Router,
    pub(crate) app: App,
    pub(crate) connections: Arc<Connections>,
    pub(crate) conn: Arc<ConnState>,
    pub(crate) peer: SocketAddr,
}

impl hyper::service::Service<Request<Incoming>> for ConnService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let in_flight = self.conn.begin_request();
        let (connections, conn) = (self.connections.clone(), self.conn.clone());
        let limits = &self.app.settings().limits;
        let mut request = request.map(|body| LimitedBody::wrap(body, connections.clone(), conn.clone(), limits));
        request.extensions_mut().insert(conn);
        let (app, answer) = (self.app.clone(), answer(&self.app, &self.router, request, Some(self.peer)));
        Box::pin(async move {
            let mut response = answer.await;
            let holder = response.extensions_mut().remove::<StreamHolder>();
            let stream = holder.map(|holder| (holder, app.stopping().child_token()));
            let end = stream.as_ref().map(|(_, end)| end.clone().cancelled_owned());
            let (answer, ended_another) = connections.begin_answer(in_flight, stream);
            app.meters().listener.ended_streams.fetch_add(u64::from(ended_another), Relaxed);
            Ok(response.map(|body| ResponseBody::new(body, answer, end)))
        })
    }
}

/// Runs the origin check, then the router; adds the request id and `nosniff` to the response.
pub(crate) fn answer(
    app: &App,
    router: &Router,
    mut request: Request<Body>,
    peer: Option<SocketAddr>,
) -> impl Future<Output = Response<Body>> + Send + use<> {
    let info = RequestInfo::new(request.headers(), peer);
    let id = info.header_value();
    let routed = match app.origin_check().check(&request, &info) {
        Ok(()) => {
            request.extensions_mut().insert(info);
            Ok(router.clone().call(request))
        }
        Err(problem) => {
            request.extensions_mut().insert(info);
            Err(auth::respond_unrouted(app, &request, problem))
        }
    };
    async move {
        let mut response = match routed {
            Ok(answer) => {
                let Ok(response) = answer.await;
                response
            }
            Err(problem_response) => problem_response,
        };
        let headers = response.headers_mut();
        if let Some(id) = id {
            headers.entry(REQUEST_ID).or_insert(id);
        }
        headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
        response
    }
}
