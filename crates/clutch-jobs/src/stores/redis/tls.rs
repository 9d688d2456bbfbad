//! What a URL says of TLS, and what is wrong with a certificate, in words for people.

use std::error::Error;
use std::fs;
use std::io;
use std::sync::Arc;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsCertificates,
};
use rustls::{AlertDescription, CertificateError};

/// Options of a URL with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// File of the authorities that are trusted. None: those of this machine.
    pub ca: Option<String>,
    /// Files of the certificate and key that are shown to a server that asks for one.
    pub cert: Option<String>,
    pub key: Option<String>,
    /// Any certificate will do.
    pub is_unverified: bool,
}

/// Ends of the lines in PEM that begin a certificate, and any kind of key.
const CERTIFICATE: &str = "CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

/// Options of other clients, and what to write here.
const HABITS: [(&str, &str); 6] = [
    ("ssl_cert_reqs", "verify=none"),
    ("ssl_check_hostname", "verify=none"),
    ("ssl_ca_certs", "ca=FILE"),
    ("ssl_certfile", "cert=FILE"),
    ("ssl_keyfile", "key=FILE"),
    ("ssl", "rediss:// in place of redis://"),
];

/// Returns what to write for an option of another client.
pub fn meant(option: &str) -> Option<&'static str> {
    HABITS.iter().find(|(name, _)| *name == option).map(|(_, meant)| *meant)
}

impl Tls {
    /// Takes an option of a URL's query; false: it is none of these. An error says what is wrong with it.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let file = || match decoded(value) {
            Some(file) if !file.is_empty() => Ok(Some(file)),
            _ => Err(format!("{name} is the path of a file in PEM")),
        };
        match name {
            "ca" => self.ca = file()?,
            "cert" => self.cert = file()?,
            "key" => self.key = file()?,
            "verify" if value == "none" => self.is_unverified = true,
            "verify" => return Err("verify=none is the only value; without it, the certificate is verified".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns why these options do not fit together, or the server.
    pub fn check(&self, address: &ConnectionAddr) -> Result<(), String> {
        if *self == Tls::default() {
            return Ok(());
        }
        if !matches!(address, ConnectionAddr::TcpTls { .. }) {
            return Err("ca, cert, key and verify need TLS: rediss://".to_owned());
        }
        match (&self.cert, &self.key) {
            (None, Some(_)) => Err("key needs cert, the certificate that belongs to it".to_owned()),
            _ if self.is_unverified && self.ca.is_some() => {
                Err("verify=none trusts any certificate: leave ca out, or verify".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Reads its files: they may have been renewed.
    pub fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        if self.ca.is_none() && self.cert.is_none() {
            return Client::open(info);
        }
        let client_tls = match &self.cert {
            None => None,
            Some(cert) => Some(ClientTlsConfig {
                client_cert: read("cert", cert, CERTIFICATE)?,
                client_key: match &self.key {
                    Some(key) => read("key", key, KEY)?,
                    None => read("cert", cert, KEY)?,
                },
            }),
        };
        let root_cert = self.ca.as_ref().map(|ca| read("ca", ca, CERTIFICATE)).transpose()?;
        let made = Client::build_with_tls(info, TlsCertificates { client_tls, root_cert });
        made.map_err(|error| unusable(&format!("its files of TLS cannot be used: {error}")))
    }
}

/// `what`: how a line of PEM ends that begins what is wanted. Without one, a file of authorities would trust nobody.
fn read(option: &str, file: &str, what: &str) -> RedisResult<Vec<u8>> {
    let text = fs::read(file).map_err(|error| unusable(&format!("{option}={file}: {error}")))?;
    let has_begun = |line: &[u8]| line.starts_with(b"-----BEGIN ") && line.trim_ascii_end().ends_with(what.as_bytes());
    match text.split(|byte| *byte == b'\n').any(has_begun) {
        true => Ok(text),
        false if what == KEY && option == "cert" => Err(unusable(&format!(
            "cert={file} has no private key: give its file by &key=FILE, or write the key into this one"
        ))),
        false => Err(unusable(&format!(
            "{option}={file} is no file in PEM with a {}: it needs a line -----BEGIN {what}",
            what.trim_end_matches('-').to_lowercase()
        ))),
    }
}

/// Not an error of I/O, after which one would try again.
fn unusable(why: &str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "TLS", why.to_owned()))
}

/// Decodes `%2F` and the like.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// What is wrong with the connection's TLS. None: nothing.
pub fn trouble(error: &RedisError) -> Option<String> {
    // The library's errors share their cause.
    let cause = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let cause = cause.downcast_ref::<io::Error>()?;
    let words = cause.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).and_then(words);
    match words {
        None if cause.kind() != io::ErrorKind::InvalidData => None,
        None => Some(format!("what answers does not do as a server with TLS does: {error}")),
        words => words,
    }
}

fn words(error: &rustls::Error) -> Option<String> {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            return Some("it wants a certificate of its clients: give ?cert=FILE&key=FILE".to_owned());
        }
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA | AlertDescription::BadCertificate | AlertDescription::CertificateUnknown,
        ) => return Some("it does not accept the certificate of cert=FILE".to_owned()),
        _ => return None,
    };
    let why = match certificate {
        CertificateError::UnknownIssuer => {
            "it is signed by no authority that this machine knows: give the certificate of that authority by ?ca=FILE, or \
             by the variable SSL_CERT_FILE"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: are the clocks right?".to_owned()
        }
        CertificateError::NotValidForName => "it is for another host than that of the URL".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "it is for another host than {}: for {}",
            expected.to_str(),
            if presented.is_empty() { "none (subjectAltName is missing)".to_owned() } else { presented.join(", ") }
        ),
        // webpki's, which has no variant of its own.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, as `openssl req -x509` makes it, and no server's: make one with \
             `-addext basicConstraints=critical,CA:FALSE` and give it by ?ca=FILE, or trust any with ?verify=none"
                .to_owned()
        }
        other => format!("{other:?}"),
    };
    Some(format!("its certificate of TLS is not accepted: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        assert_eq!(decoded("/a%20b%2fc").as_deref(), Some("/a b/c"));
        assert_eq!(decoded("plain").as_deref(), Some("plain"));
        assert!(["%", "%2", "%zz", "%ff"].iter().all(|text| decoded(text).is_none()));
    }
}
