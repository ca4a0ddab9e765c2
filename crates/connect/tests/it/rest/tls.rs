//! TLS connections.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use toolhub_connect::rest::Rest;
use toolhub_core::{ConnectionStateConfig, Effect, ErrorKind, testing::AssertOutcome};
use toolhub_testkit::TempFolder;

use super::support::{allow_local, call, hub};

/// The certificate authority of the test servers, its PEM file and the folder of that.
pub(crate) fn test_ca() -> &'static (CertifiedIssuer<'static, KeyPair>, PathBuf, TempFolder) {
    static AUTHORITY: OnceLock<(CertifiedIssuer<'static, KeyPair>, PathBuf, TempFolder)> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = TempFolder::new();
        let path = folder.write("ca.pem", &authority.pem()).join("ca.pem");
        (authority, path, folder)
    })
}

/// A server with a certificate for this name; returns its port, and its number of connections.
async fn tls_server(name: &str) -> (u16, Arc<AtomicUsize>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &test_ca().0).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let (listener, acceptor) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TlsAcceptor::from(Arc::new(config)));
    let (port, connections) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while let Ok(1..) = stream.read(&mut [0; 1024]).await {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure").await;
                }
            });
        }
    });
    (port, connections)
}

#[tokio::test]
async fn a_service_is_believed_when_somebody_trusted_vouches_for_its_name() {
    let (port, _) = tls_server("127.0.0.1").await;
    let rest = |host: &str| {
        let once = ConnectionStateConfig { retry_attempts: 1, ..Default::default() };
        allow_local(Rest::post(format!("https://{host}:{port}/"))).allow_host("localhost").connection(once)
    };
    let trusting = hub(rest("127.0.0.1").ca_file(&test_ca().1)).await;
    assert_eq!(call(&trusting, json!({})).await.assert_success(), &json!("secure"));
    // An unknown issuer, and a certificate for another name.
    for (rest, fragment) in
        [(rest("127.0.0.1"), ""), (rest("localhost").ca_file(&test_ca().1), "TLS verification failed")]
    {
        let outcome = call(&hub(rest).await, json!({})).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::UpstreamUnreachable);
        let error = outcome.error.unwrap().operator;
        assert!(error.contains(fragment), "{error}");
    }
}

#[tokio::test]
async fn connections_are_used_again_over_tls_too() {
    let (port, connections) = tls_server("127.0.0.1").await;
    let rest = allow_local(Rest::post(format!("https://127.0.0.1:{port}/"))).ca_file(&test_ca().1);
    let hub = hub(rest).await;
    for _ in 0..5 {
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("secure"));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}
