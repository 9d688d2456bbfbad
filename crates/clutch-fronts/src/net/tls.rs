//! TLS of connections, with the versions of HTTP by ALPN. Clients may have to show certificates.

use std::io;
use std::sync::Arc;

use crate::config::{ClientAuth, TlsConfig};
use clutch_wire::sync::RwLock;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::net::protocol::Protocol;
use crate::net::stream::Io;

/// Certificate and key that a server shows its clients, as they were when the files were last read.
pub(crate) struct Tls {
    source: CertificateFiles,
    /// Taken by handshakes that begin; a reload puts another one here.
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads certificate and key of this front; what is wrong with them is told with the file. `speaks`: offered to
    /// clients by ALPN, the best first.
    pub(crate) fn load(front: &str, files: &TlsConfig, speaks: &'static [Protocol]) -> io::Result<Tls> {
        let source = CertificateFiles { front: front.to_owned(), files: files.clone(), speaks };
        let acceptor = RwLock::new(source.acceptor()?);
        Ok(Tls { source, acceptor })
    }

    /// Reads the files anew, for connections that come. Where something is wrong with them, nothing changes.
    pub(crate) fn reload(&self) -> io::Result<()> {
        *self.acceptor.write() = self.source.acceptor()?;
        Ok(())
    }

    pub(crate) async fn accept(&self, io: Box<dyn Io>) -> io::Result<TlsStream<Box<dyn Io>>> {
        let handshake = self.acceptor.read().accept(io);
        handshake.await
    }
}

/// Files that the certificate comes from.
struct CertificateFiles {
    front: String,
    files: TlsConfig,
    speaks: &'static [Protocol],
}

impl CertificateFiles {
    fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let files = &self.files;
        let chain = self.certificates("tls.certificate", &files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| self.wrong("tls.key", &files.key, &why_no_key(files, &error)))?;
        let both = format!("{}' with tls.certificate '{}", files.key, files.certificate);
        let builder = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match self.client_verifier()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut server =
            builder.with_single_cert(chain, key).map_err(|error| self.wrong("tls.key", &both, &error.to_string()))?;
        server.alpn_protocols = self.speaks.iter().filter_map(|protocol| protocol.alpn()).map(<[u8]>::to_vec).collect();
        Ok(TlsAcceptor::from(Arc::new(server)))
    }

    fn certificates(&self, option: &str, path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
        let found = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| self.wrong(option, path, &why(&error)))?;
        if found.is_empty() {
            return Err(self.wrong(option, path, "it holds no certificate in PEM"));
        }
        Ok(found)
    }

    /// None: clients are not asked for certificates.
    fn client_verifier(&self) -> io::Result<Option<Arc<dyn ClientCertVerifier>>> {
        let auth = self.files.client_auth;
        let Some(path) = self.files.client_ca.as_deref().filter(|_| auth != ClientAuth::None) else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates("tls.client_ca", path)? {
            roots.add(certificate).map_err(|error| self.wrong("tls.client_ca", path, &error.to_string()))?;
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if auth == ClientAuth::Optional { builder.allow_unauthenticated() } else { builder };
        builder.build().map(Some).map_err(|error| self.wrong("tls.client_ca", path, &error.to_string()))
    }

    fn wrong(&self, option: &str, path: &str, why: &str) -> io::Error {
        let front = &self.front;
        io::Error::new(io::ErrorKind::InvalidInput, format!("fronts.{front}.{option} '{path}': {why}"))
    }
}

fn why_no_key(config: &TlsConfig, error: &PemError) -> String {
    // Encrypted as PKCS #8, or in the older way of OpenSSL.
    match std::fs::read_to_string(&config.key) {
        Ok(text) if text.contains("ENCRYPTED") => format!(
            "it is encrypted, which is not supported; decrypt it: openssl pkey -in '{}' -out plain.key",
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
