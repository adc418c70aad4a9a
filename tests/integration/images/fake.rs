//! A registry that answers as a case wants it to: the ways of misbehaving that a real one does not have.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

/// What was asked.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    pub range_from: Option<usize>,
    pub authorization: Option<String>,
}

/// What is answered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Keeps sending the body over and over, without saying how long it is.
    pub endless: bool,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), endless: false }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::ok("") }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// A misbehaving registry; it lives as long as the test binary.
#[derive(Debug, Clone)]
pub struct Fake {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    /// Starts a registry that answers every request by this function.
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let fake = Self { port: listener.local_addr()?.port(), requests: Arc::default() };
        let (requests, answer) = (fake.requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, answer) = (requests.clone(), answer.clone());
                // A client that goes away is none of the case's business.
                std::thread::spawn(move || drop(serve(&stream, &requests, &*answer)));
            }
        });
        Ok(fake)
    }

    /// Gives `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives all requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().map(|requests| requests.clone()).unwrap_or_default()
    }
}

fn serve(stream: &TcpStream, requests: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Reply) -> Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().context("a request")??;
    let mut request = Request { path: first.split(' ').nth(1).unwrap_or("/").to_owned(), ..Request::default() };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range_from = value.trim_start_matches("bytes=").trim_end_matches('-').parse().ok(),
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let reply = answer(&request);
    if let Ok(mut requests) = requests.lock() {
        requests.push(request);
    }
    let mut head = format!("HTTP/1.1 {} Fake\r\nConnection: close\r\n", reply.status);
    let length = reply.headers.iter().any(|(name, _)| name == "Content-Length");
    if !reply.endless && !length {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut out = stream;
    out.write_all(head.as_bytes())?;
    out.write_all(b"\r\n")?;
    out.write_all(&reply.body)?;
    if reply.endless {
        // Until the client has had enough and closes, which makes the write fail.
        loop {
            out.write_all(&reply.body)?;
        }
    }
    Ok(())
}
