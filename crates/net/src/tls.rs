//! TLS client configuration: trusted certificates and ALPN.
//!
//! In: an optional PEM file with additional root certificates. Out: a rustls configuration with the platform's verifier, ring and
//! HTTP/1.1 in ALPN. `dial` performs the handshakes.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;

/// Reads the certificates of a PEM file.
///
/// # Errors
/// The reason why they cannot be read.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |reason: String| format!("the certificates in {} cannot be read: {reason}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let all = read.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    if all.is_empty() { Err(failed("the file contains no certificates".into())) } else { Ok(all) }
}

/// The client configuration. Reads the system's certificates, which takes a few milliseconds.
///
/// # Errors
/// When a root certificate cannot be read.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let extra_roots = ca_file.map_or(Ok(Vec::new()), read_certificates)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| format!("TLS setup failed: {error}");
    let verifier = Verifier::new_with_extra_roots(extra_roots, provider.clone()).map_err(failed)?;
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let mut config = builder
        // `dangerous` because rustls treats the platform verifier as custom; certificates are still fully verified.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
