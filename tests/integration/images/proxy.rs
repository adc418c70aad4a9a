//! A TCP proxy in front of a registry that counts, and cuts connections as a dying machine does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

/// A proxy on a loopback port; it lives as long as the test binary.
#[derive(Debug, Clone)]
pub struct Proxy {
    port: u16,
    passed: Arc<AtomicU64>,
    budget: Arc<AtomicU64>,
    cut: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy that passes on what comes, both ways.
    pub fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let proxy =
            Self { port, passed: Arc::default(), budget: Arc::new(AtomicU64::new(u64::MAX)), cut: Arc::default() };
        let (shared, target) = (proxy.clone(), target.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(&client, &server));
            }
        });
        Ok(proxy)
    }

    /// Gives `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Lets so many more bytes come from the registry, then cuts every connection.
    pub fn allow(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::SeqCst);
    }

    /// Gives how many bytes came from the registry since the last call.
    pub fn take_passed(&self) -> u64 {
        self.passed.swap(0, Ordering::SeqCst)
    }

    /// Gives how many connections were cut because the bytes that were let pass are used up.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::SeqCst)
    }

    fn serve(&self, client: &TcpStream, server: &TcpStream) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut from, mut to) = (client, server);
                drop(std::io::copy(&mut from, &mut to));
                drop(server.shutdown(Shutdown::Both));
            });
            let (mut from, mut to) = (server, client);
            let mut buffer = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let taken = self
                    .budget
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(count as u64)));
                let allowed = count.min(usize::try_from(taken.unwrap_or(0)).unwrap_or(usize::MAX));
                if to.write_all(&buffer[..allowed]).is_err() {
                    break;
                }
                if allowed < count {
                    self.cut.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                self.passed.fetch_add(allowed as u64, Ordering::SeqCst);
            }
            drop(client.shutdown(Shutdown::Both));
            drop(server.shutdown(Shutdown::Both));
        });
    }
}
