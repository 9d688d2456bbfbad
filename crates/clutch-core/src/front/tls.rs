//! TLS of connections, with HTTP/2 and HTTP/1.1 by ALPN. Clients may have to show certificates.

use std::io;
use std::sync::Arc;

use crate::sync::RwLock;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::listen::Io;
use crate::config::{ClientAuth, TlsConfig};

/// What a server shows its clients, as the files said when they were read last.
pub(super) struct Tls {
    files: TlsConfig,
    /// Taken by handshakes that begin; a reload puts another one here.
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads certificate and key; what is wrong with them is told with the file.
    pub(super) fn load(files: &TlsConfig) -> io::Result<Tls> {
        Ok(Tls { files: files.clone(), acceptor: RwLock::new(acceptor(files)?) })
    }

    /// Reads the files anew, for connections that come. Where something is wrong with them, nothing changes.
    pub(super) fn reload(&self) -> io::Result<()> {
        *self.acceptor.write() = acceptor(&self.files)?;
        Ok(())
    }

    pub(super) async fn accept(&self, io: Box<dyn Io>) -> io::Result<TlsStream<Box<dyn Io>>> {
        let handshake = self.acceptor.read().accept(io);
        handshake.await
    }
}

fn acceptor(config: &TlsConfig) -> io::Result<TlsAcceptor> {
    let chain = certificates("tls.certificate", &config.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|error| wrong("tls.key", &config.key, &why_no_key(config, &error)))?;
    let both = format!("{}' with tls.certificate '{}", config.key, config.certificate);
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match client_verifier(config)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut server =
        builder.with_single_cert(chain, key).map_err(|error| wrong("tls.key", &both, &error.to_string()))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn certificates(option: &str, path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(option, path, &why(&error)))?;
    if found.is_empty() {
        return Err(wrong(option, path, "it holds no certificate in PEM"));
    }
    Ok(found)
}

/// None: clients are not asked for certificates.
fn client_verifier(config: &TlsConfig) -> io::Result<Option<Arc<dyn ClientCertVerifier>>> {
    let Some(path) = config.client_ca.as_deref().filter(|_| config.client_auth != ClientAuth::None) else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.client_ca", path)? {
        roots.add(certificate).map_err(|error| wrong("tls.client_ca", path, &error.to_string()))?;
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if config.client_auth == ClientAuth::Optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|error| wrong("tls.client_ca", path, &error.to_string()))
}

fn why_no_key(config: &TlsConfig, error: &PemError) -> String {
    // Encrypted as PKCS #8, or in the older way of OpenSSL.
    match std::fs::read_to_string(&config.key) {
        Ok(text) if text.contains("ENCRYPTED") => format!(
            "it is encrypted, and there is nobody to ask for its password; decrypt it: openssl pkey -in '{}' -out plain.key",
            config.key
        ),
        _ => why(error),
    }
}

fn why(error: &PemError) -> String {
    match error {
        PemError::NoItemsFound => "it holds none in PEM".to_owned(),
        error => error.to_string(),
    }
}

fn wrong(option: &str, path: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("fronts.serve.{option} '{path}': {why}"))
}
