//! Trust Anchor, Protocol Identities, and TLS configurations.
