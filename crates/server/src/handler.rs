//! Handlers: async functions whose arguments are extracted from the request one by one.
//!
//! In: a function. Out: a `Handler` that extracts the arguments in order and answers with the first problem it finds.
//! The request head is read synchronously, without a future per argument; only the body is awaited.

use axum::{
    body::to_bytes,
    extract::Request,
    response::{IntoResponse, Response},
};
use futures_core::future::BoxFuture;

use crate::{
    app::App,
    extract::{FromBody, FromParts},
    operation::Operation,
    problem::Problem,
};

/// A function that answers requests. `T` is the tuple of its argument types; the compiler infers it.
pub(crate) trait Handler<T>: Send + Sync + 'static {
    /// Adds its arguments to the description of its route.
    fn describe(operation: &mut Operation<'_>);

    /// Answers a request.
    fn call(&self, request: Request, app: App) -> BoxFuture<'static, Response>;
}

/// Marks a handler without a body.
pub(crate) struct NoBody;
/// Marks a handler whose last argument is the body.
pub(crate) struct WithBody;

macro_rules! handlers {
    ($($name:ident)*) => {
        impl<H, F, R, $($name,)*> Handler<(NoBody, $($name,)*)> for H
        where
            H: Fn($($name,)*) -> F + Send + Sync + 'static,
            F: Future<Output = R> + Send + 'static,
            R: IntoResponse,
            $($name: FromParts,)*
        {
            #[allow(unused_variables, reason = "a handler may take nothing")]
            fn describe(operation: &mut Operation<'_>) {
                $($name::describe(operation);)*
            }

            #[allow(unused_variables, unused_mut, non_snake_case, reason = "a handler may take nothing; types name the parts")]
            fn call(&self, request: Request, app: App) -> BoxFuture<'static, Response> {
                let (mut parts, _) = request.into_parts();
                $(let $name = match $name::from_parts(&mut parts, &app) {
                    Ok(part) => part,
                    Err(problem) => return problem_response(problem),
                };)*
                let response = self($($name,)*);
                Box::pin(async move { response.await.into_response() })
            }
        }

        impl<H, F, R, B, $($name,)*> Handler<(WithBody, $($name,)* B)> for H
        where
            H: Fn($($name,)* B) -> F + Clone + Send + Sync + 'static,
            F: Future<Output = R> + Send + 'static,
            R: IntoResponse,
            B: FromBody,
            $($name: FromParts,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($name::describe(operation);)*
                B::describe(operation);
            }

            #[allow(unused_mut, non_snake_case, reason = "a handler may take a body only; types name the parts")]
            fn call(&self, request: Request, app: App) -> BoxFuture<'static, Response> {
                let (mut parts, body) = request.into_parts();
                $(let $name = match $name::from_parts(&mut parts, &app) {
                    Ok(part) => part,
                    Err(problem) => return problem_response(problem),
                };)*
                let handler = self.clone();
                Box::pin(async move {
                    let limit = app.settings().limits.body;
                    let body = match to_bytes(body, limit).await {
                        Ok(bytes) => B::from_body(&parts.headers, bytes, &app),
                        Err(error) => Err(B::incomplete_body_problem(&error, limit)),
                    };
                    match body {
                        Ok(body) => handler($($name,)* body).await.into_response(),
                        Err(problem) => problem.into_response(),
                    }
                })
            }
        }
    };
}
handlers!();
handlers!(P1);
handlers!(P1 P2);
handlers!(P1 P2 P3);
handlers!(P1 P2 P3 P4);
handlers!(P1 P2 P3 P4 P5);
handlers!(P1 P2 P3 P4 P5 P6);
handlers!(P1 P2 P3 P4 P5 P6 P7);
handlers!(P1 P2 P3 P4 P5 P6 P7 P8);

fn problem_response(problem: Problem) -> BoxFuture<'static, Response> {
    Box::pin(std::future::ready(problem.into_response()))
}
