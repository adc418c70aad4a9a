//! Who gets a channel and who is refused, over real sockets and real TLS.

use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;

use super::*;
use crate::domain::ids::{CoordinatorId, DomainId, Generation, ProfileName};

const WORKSPACE: &str = "/home/dev/project";

fn profile() -> ProfileName {
    "claude".parse().unwrap()
}

fn anchor_of(workspace: &str, generation: u64) -> TrustAnchor {
    let domain = DomainId::derive(&profile(), Path::new(workspace));
    TrustAnchor::mint(&domain, &profile(), Generation(generation), &CoordinatorId::mint()).unwrap()
}

/// A listening coordinator of generation 2, and where its socket is.
struct Served {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    listener: UnixListener,
    face: Arc<Face>,
}

impl Served {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("hc.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let face = Arc::new(Face::new(anchor_of(WORKSPACE, 2)).unwrap());
        Self { _directory: directory, socket, listener, face }
    }

    fn publication(&self) -> Publication {
        self.face.publication().clone()
    }

    /// Accepts one connection while `client` runs, and gives both results.
    async fn with<T>(
        &self,
        client: impl Future<Output = T>,
    ) -> (Result<(ServerChannel, PeerIdentity), ChannelError>, T) {
        let serve = async {
            let (stream, _) = self.listener.accept().await.unwrap();
            accept(stream, &self.face).await
        };
        tokio::join!(serve, client)
    }

    async fn connect_with(
        &self,
        publication: &Publication,
    ) -> (Result<(ServerChannel, PeerIdentity), ChannelError>, Result<ClientChannel, ChannelError>) {
        self.with(connect(publication, &self.socket, &ClientCliId::mint())).await
    }
}

#[tokio::test]
async fn both_ends_know_each_other_and_messages_pass() {
    let served = Served::start();
    let client = ClientCliId::mint();
    let (accepted, connected) = served.with(connect(&served.publication(), &served.socket, &client)).await;
    let (mut server, identity) = accepted.unwrap();
    let mut channel = connected.unwrap();
    assert_eq!(identity.component, Component::Client(client));
    assert_eq!(identity.domain, served.publication().domain);
    assert_eq!(identity.generation, Generation(2));

    channel.send(ClientMessage::Status).await.unwrap();
    assert_eq!(server.next().await.unwrap().unwrap(), ClientMessage::Status);
    let bulk = CoordinatorMessage::Output(crate::wire::client::Stream::Output, vec![7; 900 << 10]);
    let (sent, received) = tokio::join!(server.send(bulk.clone()), channel.next());
    sent.unwrap();
    assert_eq!(received.unwrap().unwrap(), bulk);
}

#[tokio::test]
async fn a_greeting_that_means_something_else_is_refused() {
    let served = Served::start();
    let right = served.publication();
    let stale = Publication { generation: Generation(1), ..right.clone() };
    let (accepted, connected) = served.connect_with(&stale).await;
    let expected = HelloRefusal::StaleGeneration { asked: Generation(1), published: Generation(2) };
    assert!(matches!(accepted, Err(ChannelError::Refused(refusal)) if refusal == expected));
    assert!(matches!(connected, Err(ChannelError::Refused(refusal)) if refusal == expected));

    let domain = DomainId::derive(&profile(), Path::new("/elsewhere"));
    let profile = "codex".parse().unwrap();
    for wrong in [Publication { domain, ..right.clone() }, Publication { profile, ..right.clone() }] {
        let (_, connected) = served.connect_with(&wrong).await;
        assert!(matches!(connected, Err(ChannelError::Refused(HelloRefusal::WrongDomain))));
    }

    served.face.withdraw();
    let (_, connected) = served.connect_with(&right).await;
    assert!(matches!(connected, Err(ChannelError::Refused(HelloRefusal::NotPublished))));
}

#[tokio::test]
async fn another_version_and_a_bad_request_are_refused() {
    let served = Served::start();
    let key = ClientKey::generate().unwrap();
    let right = hello(&served.publication(), &ClientCliId::mint(), &key);
    let newer = Hello { version: PROTOCOL_VERSION + 1, ..right.clone() };
    let unproven = Hello { request: vec![0x30, 0], ..right };
    for (wrong, version_differs) in [(newer, true), (unproven, false)] {
        let (accepted, reply) = served.with(greet(&served.socket, wrong)).await;
        assert!(matches!(accepted, Err(ChannelError::Refused(_))));
        match reply.1.unwrap() {
            HelloReply::Refused(HelloRefusal::Version { .. }) => assert!(version_differs),
            HelloReply::Refused(HelloRefusal::BadRequest) => assert!(!version_differs),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_malformed_or_oversized_greeting_is_an_error_at_once() {
    let served = Served::start();
    for bytes in [&[0xff, 0xff, 0xff, 0xff][..], &[0, 0, 0, 2, 0xc1, 0xc1], b"GET / HTTP/1.1\r\n\r\n", b""] {
        let client = async {
            let mut stream = UnixStream::connect(&served.socket).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            stream
        };
        let (accepted, _) = served.with(client).await;
        assert!(matches!(accepted, Err(ChannelError::Greeting(_) | ChannelError::OutOfOrder)));
    }
}

/// What a client that does not keep to the protocol presents in the TLS handshake.
enum Presented {
    /// A certificate and key of somebody else.
    Pair(CertificateDer<'static>, PrivateKeyDer<'static>),
    /// No certificate.
    Nothing,
    /// Its own certificate, but by TLS 1.2.
    OldVersion,
}

#[tokio::test]
async fn certificates_of_others_are_refused() {
    let served = Served::start();
    let stale_key = ClientKey::generate().unwrap();
    let stale = anchor_of(WORKSPACE, 1).enrol(&ClientCliId::mint(), &stale_key.request().unwrap()).unwrap();
    let foreign_key = ClientKey::generate().unwrap();
    let foreign = anchor_of("/elsewhere", 2).enrol(&ClientCliId::mint(), &foreign_key.request().unwrap()).unwrap();
    let own_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let uri = served.face.anchor.client_identity(&ClientCliId::mint()).to_string();
    params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
    let self_signed = params.self_signed(&own_key).unwrap().der().clone();
    let (server_certificate, server_key) =
        (served.face.anchor.coordinator_certificate(), served.face.anchor.coordinator_key());

    for (name, presented) in [
        ("stale generation", Presented::Pair(stale, stale_key.to_private())),
        ("foreign Domain", Presented::Pair(foreign, foreign_key.to_private())),
        ("self-signed", Presented::Pair(self_signed, super::super::enrolment::private_key(&own_key))),
        ("the coordinator's own", Presented::Pair(server_certificate, server_key)),
        ("none", Presented::Nothing),
        ("an old TLS version", Presented::OldVersion),
    ] {
        let (accepted, ()) = served.with(present(&served, presented)).await;
        assert!(matches!(accepted, Err(ChannelError::Handshake(_))), "{name}: {accepted:?}");
    }
}

#[tokio::test]
async fn another_clients_certificate_is_not_ones_own() {
    let served = Served::start();
    let key = ClientKey::generate().unwrap();
    let other = served.face.anchor.enrol(&ClientCliId::mint(), &key.request().unwrap()).unwrap();
    let (accepted, ()) = served.with(present(&served, Presented::Pair(other, key.to_private()))).await;
    assert!(matches!(accepted, Err(ChannelError::Identity(IdentityError::Differs { .. }))), "{accepted:?}");
}

#[tokio::test]
async fn an_impostor_coordinator_is_refused() {
    let served = Served::start();
    let right = served.publication();

    // Another anchor behind the same record: the previous generation's, or a foreign Domain's.
    for other in [anchor_of(WORKSPACE, 1), anchor_of("/elsewhere", 2)] {
        let record = Publication { trust_anchor: hex::encode(other.certificate()), ..right.clone() };
        let (_, connected) = served.connect_with(&record).await;
        assert!(matches!(connected, Err(ChannelError::Handshake(_))), "{connected:?}");
    }

    // The reply names another coordinator than the record.
    let record = Publication { coordinator: CoordinatorId::mint(), ..right.clone() };
    let (_, connected) = served.connect_with(&record).await;
    assert!(matches!(connected, Err(ChannelError::OutOfOrder)));

    // The reply lies, and only the certificate tells.
    let lie = async {
        let (stream, _) = served.listener.accept().await.unwrap();
        let mut greeting = Framed::new(stream, MessageCodec::<HelloReply, Hello>::new(HELLO_LIMIT));
        let hello = receive(&mut greeting).await.unwrap();
        let certificate = served.face.anchor.enrol(&hello.client, &hello.request).unwrap().to_vec();
        let coordinator = record.coordinator.clone();
        greeting.send(HelloReply::Enrolled { certificate, coordinator }).await.unwrap();
        let _ = TlsAcceptor::from(served.face.tls.clone()).accept(plain_stream(greeting).unwrap()).await;
    };
    let client = ClientCliId::mint();
    let (connected, ()) = tokio::join!(connect(&record, &served.socket, &client), lie);
    assert!(matches!(connected, Err(ChannelError::Identity(IdentityError::Differs { .. }))), "{connected:?}");
}

#[tokio::test]
async fn a_clients_certificate_can_not_serve() {
    let served = Served::start();
    let key = ClientKey::generate().unwrap();
    let certificate = served.face.anchor.enrol(&ClientCliId::mint(), &key.request().unwrap()).unwrap();
    let config = ServerConfig::builder_with_provider(super::super::crypto::provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.to_private())
        .unwrap();
    let impostor = async {
        let (stream, _) = served.listener.accept().await.unwrap();
        let mut greeting = Framed::new(stream, MessageCodec::<HelloReply, Hello>::new(HELLO_LIMIT));
        let hello = receive(&mut greeting).await.unwrap();
        greeting.send(served.face.admit(&hello).unwrap()).await.unwrap();
        let _ = TlsAcceptor::from(Arc::new(config)).accept(plain_stream(greeting).unwrap()).await;
    };
    let (publication, client) = (served.publication(), ClientCliId::mint());
    let (connected, ()) = tokio::join!(connect(&publication, &served.socket, &client), impostor);
    assert!(matches!(connected, Err(ChannelError::Handshake(_))), "{connected:?}");
}

#[tokio::test]
async fn a_dead_socket_is_told_apart() {
    let served = Served::start();
    let (publication, socket) = (served.publication(), served.socket.clone());
    let Served { _directory, listener, .. } = served;
    drop(listener);
    for path in [socket.clone(), socket.with_extension("absent")] {
        let connected = connect(&publication, &path, &ClientCliId::mint()).await;
        assert!(matches!(connected, Err(ChannelError::NotServed(_))));
    }
}

/// Not a test of anything that can fail: prints what one handshake costs both sides together.
#[tokio::test]
#[ignore = "a measurement"]
async fn handshake_cost() {
    let served = Served::start();
    let publication = served.publication();
    const ROUNDS: u32 = 200;
    let started = std::time::Instant::now();
    for _ in 0..ROUNDS {
        let (accepted, connected) = served.connect_with(&publication).await;
        accepted.unwrap();
        connected.unwrap();
    }
    println!("{} us a handshake, both sides", started.elapsed().as_micros() / u128::from(ROUNDS));
}

fn hello(publication: &Publication, client: &ClientCliId, key: &ClientKey) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        domain: publication.domain.clone(),
        profile: publication.profile.clone(),
        generation: publication.generation,
        client: client.clone(),
        request: key.request().unwrap(),
    }
}

async fn greet(
    socket: &Path,
    hello: Hello,
) -> (Framed<UnixStream, MessageCodec<Hello, HelloReply>>, Result<HelloReply, ChannelError>) {
    let stream = UnixStream::connect(socket).await.unwrap();
    let mut greeting = Framed::new(stream, MessageCodec::<Hello, HelloReply>::new(HELLO_LIMIT));
    greeting.send(hello).await.unwrap();
    let reply = receive(&mut greeting).await;
    (greeting, reply)
}

/// Enrols properly, then presents something else in the handshake.
async fn present(served: &Served, presented: Presented) {
    let key = ClientKey::generate().unwrap();
    let (greeting, reply) = greet(&served.socket, hello(&served.publication(), &ClientCliId::mint(), &key)).await;
    let HelloReply::Enrolled { certificate, .. } = reply.unwrap() else { panic!("not enrolled") };
    let version = if matches!(presented, Presented::OldVersion) { &TLS12 } else { &TLS13 };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(served.face.anchor.certificate().clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(super::super::crypto::provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match presented {
        Presented::Pair(certificate, key) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        Presented::OldVersion => builder.with_client_auth_cert(vec![certificate.into()], key.to_private()).unwrap(),
        Presented::Nothing => builder.with_no_client_auth(),
    };
    let publication = served.publication();
    let name = PeerIdentity {
        component: Component::Coordinator(publication.coordinator),
        profile: publication.profile,
        domain: publication.domain,
        generation: publication.generation,
    }
    .server_name();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(name).unwrap(), plain_stream(greeting).unwrap()).await;
    // The client's side of the handshake ends before the server has looked at the certificate.
    if let Ok(mut stream) = stream {
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await;
    }
}
