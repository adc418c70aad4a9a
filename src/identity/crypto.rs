//! The one cryptographic provider: ring, chosen explicitly.

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;

/// Gives the provider that every TLS configuration here names.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Makes the provider the process's default, for libraries that build their own TLS
/// configuration, such as the registry client. Doing it again changes nothing.
pub fn install() {
    // An error only says that a default is installed already; nothing else here installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
