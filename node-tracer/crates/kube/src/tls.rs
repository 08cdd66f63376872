//! The TLS side of a connection: whom it trusts, and who it is.

use std::sync::Arc;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::{
    error::Problem,
    kubeconfig::{Identity, Loaded},
};

/// For TCP, with TLS where the address has it.
pub(super) type Connector = HttpsConnector<HttpConnector>;

pub(super) fn connector(
    loaded: &Loaded,
    identity: &Identity,
    tcp: HttpConnector,
) -> Result<Connector, Problem> {
    let config = config(loaded, identity).ok_or(Problem::BadSecret)?;
    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http();
    let builder = match &loaded.server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|_| Problem::BadSecret)?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    Ok(builder.enable_http1().wrap_connector(tcp))
}

/// `None`: a certificate or a key is none.
fn config(loaded: &Loaded, identity: &Identity) -> Option<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().ok()?;
    let builder = if loaded.insecure {
        let anybody = Arc::new(Anybody(provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(anybody)
    } else {
        builder.with_root_certificates(roots(loaded)?)
    };
    match (&identity.certificate, &identity.key) {
        (None, None) => Some(builder.with_no_client_auth()),
        (certificate, key) => {
            let chain = certificates(certificate.as_ref()?)?;
            let key = PrivateKeyDer::from_pem_slice(key.as_ref()?).ok()?;
            builder.with_client_auth_cert(chain, key).ok()
        }
    }
}

/// Whom to trust: the kubeconfig's authority, or the system's.
fn roots(loaded: &Loaded) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match &loaded.authority {
        Some(pem) => {
            // One that is not understood does not take the others with it.
            let (added, _) = roots.add_parsable_certificates(certificates(pem)?);
            if added == 0 {
                return None;
            }
        }
        None if loaded.url.starts_with("https") => {
            // Those that it does not understand are left out.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    Some(roots)
}

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
}

/// Trusts any server: `insecure-skip-tls-verify`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
