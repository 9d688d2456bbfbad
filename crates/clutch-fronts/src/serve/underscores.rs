//! Headers with an underscore in their name. In CGI's names, which WSGI and many frameworks use, `X_Forwarded_For` is what
//! `X-Forwarded-For` is: one could pose as the other.

use crate::config::HeaderMap;

/// Which of them an app gets.
#[derive(Debug)]
pub(super) struct Underscores {
    map: HeaderMap,
    /// Names that a trusted peer may set, in capitals.
    of_forwarders: Vec<String>,
}

/// What becomes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    Dropped,
    Refused,
}

impl Underscores {
    pub(super) fn new(map: HeaderMap, of_forwarders: &[String]) -> Underscores {
        Underscores { map, of_forwarders: of_forwarders.iter().map(|name| name.to_ascii_uppercase()).collect() }
    }

    /// `is_trusted`: its request came from a peer whose `X-Forwarded-…` headers are believed.
    pub(super) fn takes(&self, name: &str, is_trusted: bool) -> Taken {
        if !name.contains('_') {
            return Taken::Yes;
        }
        let is_named = |known: &String| known == "*" || known.eq_ignore_ascii_case(name);
        match self.map {
            _ if is_trusted && self.of_forwarders.iter().any(is_named) => Taken::Yes,
            HeaderMap::Dangerous => Taken::Yes,
            HeaderMap::Drop => Taken::Dropped,
            HeaderMap::Refuse => Taken::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_an_underscore_are_for_those_who_may_set_them() {
        let takes = |map, named: &[&str], is_trusted| {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            Underscores::new(map, &named).takes("oidc_claim_name", is_trusted)
        };
        assert_eq!(takes(HeaderMap::Drop, &[], true), Taken::Dropped);
        assert_eq!(takes(HeaderMap::Refuse, &[], true), Taken::Refused);
        assert_eq!(takes(HeaderMap::Dangerous, &[], false), Taken::Yes);
        for named in ["OIDC_CLAIM_NAME", "oidc_claim_name", "*"] {
            assert_eq!(takes(HeaderMap::Drop, &[named], true), Taken::Yes);
            assert_eq!(takes(HeaderMap::Refuse, &[named], false), Taken::Refused);
        }
        assert_eq!(takes(HeaderMap::Drop, &["OTHER_NAME"], true), Taken::Dropped);
        assert_eq!(Underscores::new(HeaderMap::Refuse, &[]).takes("x-api-key", false), Taken::Yes);
    }
}
