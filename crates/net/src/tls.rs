//! TLS client configuration: which certificates are trusted.
//!
//! In: a PEM file with further root certificates, or none. Out: a rustls configuration with the platform's verifier, ring and HTTP/1.1 in
//! ALPN. Handshakes are made in `dial`.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;

/// Reads the certificates of a PEM file.
///
/// # Errors
/// Why they cannot be read.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unread = |why: String| format!("the certificates in {} cannot be read: {why}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unread(error.to_string()))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| unread(error.to_string()))?;
    if all.is_empty() { Err(unread("there are none in it".into())) } else { Ok(all) }
}

/// The client configuration. Reads the system's certificates, which takes some milliseconds.
///
/// # Errors
/// When a root certificate cannot be read.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let more = ca_file.map_or(Ok(Vec::new()), read_certificates)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |error: rustls::Error| format!("TLS cannot be set up: {error}");
    let verifier = Verifier::new_with_extra_roots(more, provider.clone()).map_err(wrong)?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(wrong)?;
    let mut config = builder
        // The system's own verifier is "custom" to rustls; nothing is left unchecked.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
