//! TLS of connections, with HTTP/2 and HTTP/1.1 by ALPN.

use std::io;
use std::sync::Arc;

use crate::sync::RwLock;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::listen::Io;
use crate::config::TlsConfig;

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
    let certificates = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong("tls.certificate", &config.certificate, &why(&error)))?;
    if certificates.is_empty() {
        return Err(wrong("tls.certificate", &config.certificate, "it holds no certificate in PEM"));
    }
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(|error| wrong("tls.key", &config.key, &why(&error)))?;
    let both = format!("{}' with tls.certificate '{}", config.key, config.certificate);
    let mut server = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| wrong("tls.key", &both, &error.to_string()))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
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
