//! Checks that the user of a store may run all commands that the store needs.
//!
//! In: a connection. Out: the command that is missing. Runs none of the commands: a script that lacked one of them in the middle of a commit
//! would leave half of the commit written.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use toolhub_storage::backend::Table;

use super::{
    answer,
    error::OpenError,
    keys::{Bucket, Keys},
    link::Link,
    script::{PERMISSIONS, ScriptCall},
    supervisor::describe,
};

/// Checks the server, or each server of a Cluster; with `with_wait`, also whether the user may wait for replicas.
///
/// # Errors
/// [`OpenError::Permission`] with the first command that is not allowed.
pub(super) async fn check(link: &mut Link, keys: &Keys, with_wait: bool) -> Result<(), OpenError> {
    let is_cluster = matches!(link, Link::Cluster(_));
    // A user has the same permissions in all buckets of one server.
    let buckets = keys.buckets().take(if is_cluster { usize::MAX } else { 1 });
    let commands: Vec<_> = buckets.map(|bucket| call(keys, bucket, is_cluster, with_wait).command(true)).collect();
    for answer in link.send_all(&commands).await.map_err(|error| denied_or_failed(&error))? {
        if answer != Value::Nil {
            let command = answer::into_text(answer).map_err(|error| OpenError::Failed(error.to_string()))?;
            return Err(OpenError::Permission(format!("it may not run {command} on keys or channels of this store")));
        }
    }
    Ok(())
}

/// An error of a command that a user needs.
pub(super) fn denied_or_failed(error: &RedisError) -> OpenError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            OpenError::Permission(error.detail().unwrap_or("keys").to_owned())
        }
        _ => OpenError::Failed(describe(error)),
    }
}

fn call(keys: &Keys, bucket: Bucket, is_cluster: bool, with_wait: bool) -> ScriptCall {
    let names = vec![
        keys.rows(bucket, "main/"),
        keys.order(bucket, "main/"),
        keys.meta(bucket),
        keys.expiries(bucket),
        keys.answer(bucket, 0, 0),
        keys.tenants(bucket),
        keys.ids(bucket, Table::State, "main"),
        keys.terms(bucket, Table::State, "main"),
    ];
    let mut call = ScriptCall::new(&PERMISSIONS, names);
    let [publish, subscribe] = if is_cluster { ["SPUBLISH", "SSUBSCRIBE"] } else { ["PUBLISH", "SUBSCRIBE"] };
    let channel = keys.channel(bucket);
    for arg in [channel.as_str(), publish, subscribe, if with_wait { "1" } else { "0" }] {
        call.arg(arg);
    }
    call
}
