//! Something that stands before a route: it sees each request first, and hands it on or answers itself.
//!
//! In: who stands there, and the route behind. Out: a service for the router. What is done with a request is theirs to say; this is
//! what tower wants to have said besides.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use futures_core::future::BoxFuture;
use tower::{Layer, Service};

/// What is behind: a route, perhaps with something before it.
pub(crate) trait Next:
    Service<Request, Response = Response, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<S> Next for S where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

/// Who stands before a route.
pub(crate) trait Stands: Send + Sync + 'static {
    /// Answers a request, by itself or with what is behind.
    fn serve(self: Arc<Self>, request: Request, next: impl Next) -> impl Future<Output = Response> + Send;
}

/// Puts somebody before routes.
pub(crate) struct Before<W>(Arc<W>);

impl<W> Before<W> {
    pub(crate) fn new(who: W) -> Self {
        Self(Arc::new(who))
    }
}

impl<W> Clone for Before<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W, S> Layer<S> for Before<W> {
    type Service = Behind<W, S>;

    fn layer(&self, next: S) -> Behind<W, S> {
        Behind { who: self.0.clone(), next }
    }
}

/// A route that somebody stands before.
pub(crate) struct Behind<W, S> {
    who: Arc<W>,
    next: S,
}

impl<W, S: Clone> Clone for Behind<W, S> {
    fn clone(&self) -> Self {
        Self { who: self.who.clone(), next: self.next.clone() }
    }
}

impl<W: Stands, S: Next> Service<Request> for Behind<W, S> {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The one that was asked whether it is ready is the one that serves.
        let later = self.next.clone();
        let (who, next) = (self.who.clone(), std::mem::replace(&mut self.next, later));
        Box::pin(async move { Ok(who.serve(request, next).await) })
    }
}
