//! A connection to Redis: one server, or the servers of a Cluster.
//!
//! In: an address and commands. Out: answers. One attempt each: `supervisor.rs` connects again, and callers decide what they repeat.

use std::{sync::Arc, time::Duration};

use futures_util::future;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode, Value,
    aio::MultiplexedConnection, cluster::ClusterClientBuilder, cluster_async::ClusterConnection,
};

use super::{Address, Options, address::Topology, options::TlsFiles};

/// For one server, with TLS and authentication.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Until a server that answers nothing counts as lost.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The Cluster client follows a moved slot by sending a command again.
const CLUSTER_RETRIES: u32 = 3;
/// Between these attempts, in milliseconds: so short that the error of the last one comes before the timeout, and says what is wrong.
const CLUSTER_RETRY_WAIT: (u64, u64) = (20, 200);

/// An open connection. Clones share it.
#[derive(Clone)]
pub(super) enum Link {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Receives the messages of a connection for notifications. Must not block.
pub(super) type PushHandler = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Opens connections.
#[derive(Clone)]
pub(super) struct Connector {
    address: Address,
    tls: TlsFiles,
    sentinel_password: Option<String>,
}

impl Connector {
    pub(super) fn new(options: &Options) -> Self {
        let (address, tls) = (options.address.clone(), options.tls.clone());
        Self { address, tls, sentinel_password: options.sentinel_password.clone() }
    }

    /// Connects for commands.
    pub(super) async fn connect(&self) -> RedisResult<Link> {
        self.connect_with(None).await
    }

    /// Connects for notifications.
    pub(super) async fn connect_for_pushes(&self, handler: PushHandler) -> RedisResult<Link> {
        self.connect_with(Some(handler)).await
    }

    /// Connects for commands in the database 0, which each server has.
    pub(super) async fn connect_to_first_database(&self) -> RedisResult<Link> {
        let mut connector = self.clone();
        connector.address.database = 0;
        connector.connect().await
    }

    /// Connects to the first server of the address that answers, whatever it belongs to.
    pub(super) async fn connect_to_one_host(&self) -> RedisResult<Link> {
        self.connect_single(&self.address.hosts, None).await
    }

    async fn connect_with(&self, handler: Option<PushHandler>) -> RedisResult<Link> {
        match &self.address.topology {
            Topology::Standalone => self.connect_single(&self.address.hosts, handler).await,
            Topology::Sentinel(name) => {
                let primary = self.find_primary(name).await?;
                self.connect_single(&[primary], handler).await
            }
            Topology::Cluster => self.connect_cluster(handler).await,
        }
    }

    async fn connect_single(&self, hosts: &[(String, u16)], handler: Option<PushHandler>) -> RedisResult<Link> {
        let mut last_error = RedisError::from((ErrorKind::InvalidClientConfig, "the address has no host"));
        for host in hosts {
            let mut config = Self::async_config();
            if let Some(handler) = handler.clone() {
                config = config.set_push_sender(move |push| {
                    handler(push);
                    Ok::<(), ()>(())
                });
            }
            match self.client(host, handler.is_some())?.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return Ok(Link::Single(connection)),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn async_config() -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
    }

    fn client(&self, host: &(String, u16), with_pushes: bool) -> RedisResult<Client> {
        let info = self.connection_info(host, self.redis_info(with_pushes))?;
        if self.address.tls { Client::build_with_tls(info, self.certificates()) } else { Client::open(info) }
    }

    fn redis_info(&self, with_pushes: bool) -> RedisConnectionInfo {
        let protocol = if with_pushes { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        let mut redis = RedisConnectionInfo::default().set_db(self.address.database).set_protocol(protocol);
        redis = redis.set_skip_set_lib_name();
        if let Some(user) = &self.address.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.address.password {
            redis = redis.set_password(password);
        }
        redis
    }

    fn connection_info(&self, (host, port): &(String, u16), redis: RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
        let addr = if self.address.tls {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host.clone(), *port)
        };
        Ok(addr.into_connection_info()?.set_redis_settings(redis))
    }

    fn certificates(&self) -> TlsCertificates {
        let client = self.tls.client.clone();
        let client_tls = client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        TlsCertificates { client_tls, root_cert: self.tls.authorities.clone() }
    }

    /// Asks the Sentinels, one after the other, for the primary of this name.
    async fn find_primary(&self, name: &str) -> RedisResult<(String, u16)> {
        let mut last_error =
            RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "no Sentinel knows a primary of this name"));
        let mut was_refused = false;
        for host in &self.address.hosts {
            let asked = async {
                // Sentinels have a password of their own; that of the servers is not sent to them.
                let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
                if let Some(password) = &self.sentinel_password {
                    login = login.set_password(password);
                }
                let info = self.connection_info(host, login)?;
                let client = if self.address.tls {
                    Client::build_with_tls(info, self.certificates())
                } else {
                    Client::open(info)
                };
                let mut sentinel = client?.get_multiplexed_async_connection_with_config(&Self::async_config()).await?;
                let mut ask = redis::cmd("SENTINEL");
                ask.arg("get-master-addr-by-name").arg(name).query_async::<Option<(String, u16)>>(&mut sentinel).await
            };
            match asked.await {
                Ok(Some(primary)) => return Ok(primary),
                Ok(None) => {}
                Err(error) if is_login_error(&error) => {
                    last_error = RedisError::from((
                        ErrorKind::InvalidClientConfig,
                        "a Sentinel refuses the password; check `store.redis.sentinel_password`",
                    ));
                    was_refused = true;
                }
                // More useful than the error of another Sentinel, which may only be away.
                Err(_) if was_refused => {}
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn connect_cluster(&self, handler: Option<PushHandler>) -> RedisResult<Link> {
        let hosts = self.address.hosts.iter();
        let infos = hosts.map(|host| self.connection_info(host, self.redis_info(handler.is_some())));
        let mut builder = ClusterClientBuilder::new(infos.collect::<RedisResult<Vec<_>>>()?)
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT)
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(CLUSTER_RETRY_WAIT.0)
            .max_retry_wait(CLUSTER_RETRY_WAIT.1);
        if self.address.tls {
            builder = builder.tls(TlsMode::Secure).certs(self.certificates());
        }
        if let Some(handler) = handler {
            builder = builder.use_protocol(ProtocolVersion::RESP3).push_sender(move |push| {
                handler(push);
                Ok::<(), ()>(())
            });
        }
        builder.build()?.get_async_connection().await.map(Link::Cluster)
    }
}

/// Whether a server refused the password, or the lack of one.
fn is_login_error(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || error.code() == Some("NOAUTH")
}

impl Link {
    /// Sends a command and returns its answer.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Single(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// Sends commands together and returns their answers. They are no transaction.
    pub(super) async fn send_all(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match self {
            Self::Single(connection) if commands.len() > 1 => {
                let mut pipeline = redis::Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                pipeline.query_async(connection).await
            }
            _ => {
                let sent = commands.iter().map(|command| {
                    let mut link = self.clone();
                    async move { link.send(command).await }
                });
                future::try_join_all(sent).await
            }
        }
    }

    /// Subscribes to channels. On a Cluster, each channel belongs to the server of its hash slot.
    pub(super) async fn subscribe(&mut self, channels: &[String]) -> RedisResult<()> {
        match self {
            Self::Single(connection) => connection.subscribe(channels).await,
            Self::Cluster(connection) => {
                for channel in channels {
                    connection.ssubscribe(channel).await?;
                }
                Ok(())
            }
        }
    }
}
