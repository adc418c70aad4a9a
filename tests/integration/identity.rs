//! The Host Coordinator's socket against clients that are not what they should be.
//!
//! Each case talks to a real coordinator; after whatever was tried, an ordinary session must work.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fs_err as fs;
use futures_util::{SinkExt, StreamExt};
use lazaret::domain::ids::{ClientCliId, Generation};
use lazaret::identity::channel::{self, ChannelError, ClientChannel};
use lazaret::identity::enrolment::ClientKey;
use lazaret::identity::{TrustAnchor, tls};
use lazaret::wire::client::{ClientMessage, CoordinatorMessage};
use lazaret::wire::frame::MessageCodec;
use lazaret::wire::hello::{Hello, HelloRefusal, HelloReply, PROTOCOL_VERSION, Publication};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use tokio_util::codec::Framed;

use crate::harness::root::{self, Deprived, Who};
use crate::harness::{Case, CaseResult, Environment, Need, case, sessions, wait_until};

pub fn cases() -> Vec<Case> {
    vec![
        case("a_client_of_another_version_is_refused", &[Need::Sandbox], a_client_of_another_version_is_refused),
        case("a_client_of_another_domain_is_refused", &[Need::Sandbox], a_client_of_another_domain_is_refused),
        case("a_request_that_proves_nothing_is_refused", &[Need::Sandbox], a_request_that_proves_nothing_is_refused),
        case("certificates_of_others_are_refused", &[Need::Sandbox], certificates_of_others_are_refused),
        case(
            "a_certificate_does_not_outlive_its_generation",
            &[Need::Sandbox],
            a_certificate_does_not_outlive_its_generation,
        ),
        case(
            "another_user_cannot_reach_the_socket",
            &[Need::Sandbox, Need::Root],
            another_user_cannot_reach_the_socket,
        ),
        case("silent_connections_block_nobody", &[Need::Sandbox], silent_connections_block_nobody),
        case("silent_clients_block_nobody", &[Need::Sandbox], silent_clients_block_nobody),
        case("garbage_is_refused", &[Need::Sandbox], garbage_is_refused),
        case("oversized_frames_are_refused", &[Need::Sandbox], oversized_frames_are_refused),
        case("messages_out_of_order_are_refused", &[Need::Sandbox], messages_out_of_order_are_refused),
    ]
}

/// How long a peer may take to answer or to hang up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A published Domain.
struct Published {
    environment: Environment,
    publication: Publication,
    socket: PathBuf,
}

impl Published {
    fn start() -> Result<Self> {
        let environment = Environment::with_prepared_image()?;
        environment.profile("test", "linger = \"60s\"")?;
        environment.lazaret(["run", "--", "true"]).run()?.ok()?;
        let runtime = environment.runtime_root()?;
        let publication = serde_json::from_slice(&fs::read(runtime.publication())?)?;
        Ok(Self { environment, publication, socket: runtime.socket() })
    }

    /// Demands that an ordinary session works, and soon.
    fn expect_service(&self) -> CaseResult {
        let begin = Instant::now();
        let output = self.environment.lazaret(["run", "--", "echo", "served"]).run()?.ok()?;
        ensure!(output.stdout() == "served\n", "{output}");
        ensure!(begin.elapsed() < Duration::from_secs(4), "a session took {:?}", begin.elapsed());
        let status = sessions::status(&self.environment, &[])?;
        ensure!(status["generation"] == self.publication.generation.0, "the Domain was started anew");
        Ok(())
    }

    fn greeting(&self, client: &ClientCliId, key: &ClientKey) -> Result<Hello> {
        Ok(Hello {
            version: PROTOCOL_VERSION,
            domain: self.publication.domain.clone(),
            profile: self.publication.profile.clone(),
            generation: self.publication.generation,
            client: client.clone(),
            request: key.request()?,
        })
    }

    /// Sends a greeting and gives the answer, with the stream that TLS would follow on.
    async fn greet(&self, hello: Hello) -> Result<(HelloReply, tokio::net::UnixStream)> {
        let stream = tokio::net::UnixStream::connect(&self.socket).await?;
        let mut greeting = Framed::new(stream, MessageCodec::<Hello, HelloReply>::new(8 << 10));
        greeting.send(hello).await?;
        let reply = tokio::time::timeout(PATIENCE, greeting.next()).await?.context("no answer")??;
        Ok((reply, greeting.into_parts().io))
    }

    async fn refusal(&self, change: impl FnOnce(&mut Hello)) -> Result<HelloRefusal> {
        let mut hello = self.greeting(&ClientCliId::mint(), &ClientKey::generate()?)?;
        change(&mut hello);
        match self.greet(hello).await?.0 {
            HelloReply::Refused(refusal) => Ok(refusal),
            HelloReply::Enrolled { .. } => bail!("the client was enrolled"),
        }
    }

    /// Enrols, and gives what the coordinator issued.
    async fn enrol(&self, client: &ClientCliId) -> Result<Enrolled> {
        let key = ClientKey::generate()?;
        match self.greet(self.greeting(client, &key)?).await? {
            (HelloReply::Enrolled { certificate, .. }, _) => Ok(Enrolled { certificate: certificate.into(), key }),
            (HelloReply::Refused(refusal), _) => Err(refusal.into()),
        }
    }

    fn server_name(&self) -> Result<ServerName<'static>> {
        let Publication { domain, generation, .. } = &self.publication;
        Ok(ServerName::try_from(format!("coordinator.g{generation}.{domain}.lazaret.internal"))?)
    }

    /// Enrols properly as this client, then presents something else in the TLS handshake, and asks for
    /// the status. Gives the answer, or why there is none.
    async fn ask_with(&self, client: &ClientCliId, presented: &Enrolled) -> Result<CoordinatorMessage> {
        let own = ClientKey::generate()?;
        let (HelloReply::Enrolled { .. }, stream) = self.greet(self.greeting(client, &own)?).await? else {
            bail!("not enrolled");
        };
        let anchor = CertificateDer::from(hex::decode(&self.publication.trust_anchor)?);
        let config = tls::client(&anchor, presented.certificate.clone(), &presented.key)?;
        let stream = TlsConnector::from(config).connect(self.server_name()?, stream).await?;
        let codec = MessageCodec::<ClientMessage, CoordinatorMessage>::new(1 << 20);
        let mut channel = Framed::new(stream, codec);
        channel.send(ClientMessage::Status).await?;
        Ok(tokio::time::timeout(PATIENCE, channel.next()).await?.context("the coordinator hung up")??)
    }

    async fn connect(&self) -> Result<ClientChannel, ChannelError> {
        channel::connect(&self.publication, &self.socket, &ClientCliId::mint()).await
    }
}

/// A certificate with its key.
struct Enrolled {
    certificate: CertificateDer<'static>,
    key: ClientKey,
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(4 * PATIENCE, work).await? })
}

fn a_client_of_another_version_is_refused() -> CaseResult {
    let published = Published::start()?;
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let refusal = block_on(published.refusal(|hello| hello.version = version))?;
        ensure!(refusal == HelloRefusal::Version { coordinator: PROTOCOL_VERSION, client: version }, "{refusal}");
    }
    // A record of another version, as the next release may write it: the command says so and what to do.
    let record = published.environment.runtime_root()?.publication();
    let original = fs::read(&record)?;
    let mut changed: serde_json::Value = serde_json::from_slice(&original)?;
    changed["version"] = (PROTOCOL_VERSION + 1).into();
    fs::write(&record, serde_json::to_vec(&changed)?)?;
    let output = published.environment.lazaret(["run", "--", "true"]).deadline(PATIENCE).run()?;
    fs::write(&record, original)?;
    output.expect_code(125)?.expect_stderr("version")?;
    published.expect_service()
}

fn a_client_of_another_domain_is_refused() -> CaseResult {
    let published = Published::start()?;
    let other = published.environment.domain_of("test", &published.environment.home())?;
    let refused = |change: &dyn Fn(&mut Hello)| block_on(published.refusal(|hello| change(hello)));
    ensure!(refused(&|hello| hello.domain = other.clone())? == HelloRefusal::WrongDomain);
    ensure!(refused(&|hello| hello.profile = "another".parse().unwrap())? == HelloRefusal::WrongDomain);
    let right = published.publication.generation;
    for asked in [Generation(0), Generation(right.0 + 1), Generation(u64::MAX)] {
        let refusal = refused(&|hello| hello.generation = asked)?;
        ensure!(refusal == HelloRefusal::StaleGeneration { asked, published: right }, "{refusal}");
    }
    published.expect_service()
}

fn a_request_that_proves_nothing_is_refused() -> CaseResult {
    let published = Published::start()?;
    let requests = block_on(async {
        let mut altered = ClientKey::generate()?.request()?;
        let last = altered.len() - 1;
        altered[last] ^= 1;
        Ok([vec![], vec![0; 64], altered, vec![0x30; 4000]])
    })?;
    for request in requests {
        let refusal = block_on(published.refusal(|hello| hello.request = request))?;
        ensure!(refusal == HelloRefusal::BadRequest, "{refusal}");
    }
    published.expect_service()
}

fn certificates_of_others_are_refused() -> CaseResult {
    let (published, neighbour) = (Published::start()?, Published::start()?);
    let Publication { domain, profile, generation, coordinator, .. } = published.publication.clone();
    block_on(async {
        let client = ClientCliId::mint();
        // The control: what was issued to this client is taken.
        let own = published.enrol(&client).await?;
        let answer = published.ask_with(&client, &own).await?;
        ensure!(matches!(answer, CoordinatorMessage::Status(_)), "{answer:?}");

        // An anchor that claims the same Domain, generation and coordinator.
        let forged = TrustAnchor::mint(&domain, &profile, generation, &coordinator)?;
        let key = ClientKey::generate()?;
        let forged = Enrolled { certificate: forged.enrol(&client, &key.request()?)?, key };
        let foreign = [
            ("a forged anchor's", forged),
            ("another Domain's", neighbour.enrol(&client).await?),
            ("another client's", published.enrol(&ClientCliId::mint()).await?),
            (
                "a certificate of another key",
                Enrolled { certificate: own.certificate.clone(), key: ClientKey::generate()? },
            ),
            (
                "the anchor's own",
                Enrolled {
                    certificate: hex::decode(&published.publication.trust_anchor)?.into(),
                    key: ClientKey::generate()?,
                },
            ),
        ];
        for (name, presented) in &foreign {
            let answer = published.ask_with(&client, presented).await;
            ensure!(answer.is_err(), "{name} certificate was taken: {answer:?}");
        }
        Ok(())
    })?;
    published.expect_service()?;
    neighbour.expect_service()
}

fn a_certificate_does_not_outlive_its_generation() -> CaseResult {
    let mut published = Published::start()?;
    let client = ClientCliId::mint();
    let kept = block_on(published.enrol(&client))?;
    let old = published.publication.clone();
    published.environment.lazaret(["down"]).run()?.ok()?;
    published.environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    let record = published.environment.runtime_root()?.publication();
    published.publication = serde_json::from_slice(&fs::read(record)?)?;
    ensure!(published.publication.generation > old.generation, "the generation is the old one");
    ensure!(published.publication.trust_anchor != old.trust_anchor, "the Trust Anchor is the old one");
    let answer = block_on(published.ask_with(&client, &kept));
    ensure!(answer.is_err(), "the old certificate was taken: {answer:?}");
    // Whoever still trusts the old record is refused by name, and would not believe the new coordinator.
    let stale = block_on(async { Ok(channel::connect(&old, &published.socket, &client).await) })?;
    ensure!(
        matches!(stale, Err(ChannelError::Refused(HelloRefusal::StaleGeneration { .. }))),
        "the old record was good enough"
    );
    let forged = Publication { generation: published.publication.generation, ..old };
    let believed = block_on(async { Ok(channel::connect(&forged, &published.socket, &client).await.is_ok()) })?;
    ensure!(!believed, "a coordinator with another anchor was believed");
    published.expect_service()
}

fn another_user_cannot_reach_the_socket() -> CaseResult {
    let published = Published::start()?;
    let socket = published.socket.display().to_string();
    let script = format!(
        "ls {socket}; curl --silent --show-error --unix-socket {socket} http://x/; ls /proc/*/fd 2>/dev/null | wc -l"
    );
    let output = root::run(Deprived {
        who: Who::Nobody,
        lacks: vec![],
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        environment: published.environment.variables().into_iter().collect(),
        directory: "/".into(),
    })?;
    ensure!(output.stderr.contains("ermission denied"), "{output:?}");
    ensure!(!output.stdout.contains("hc.sock"), "{output:?}");
    published.expect_service()
}

/// More connections than the coordinator greets at once, all of which say nothing.
fn silent_connections_block_nobody() -> CaseResult {
    let published = Published::start()?;
    let connect = |_| UnixStream::connect(&published.socket).context("connect");
    let mut silent: Vec<_> = (0..100).map(connect).collect::<Result<_>>()?;
    published.expect_service()?;
    silent.extend((0..100).map(connect).collect::<Result<Vec<_>>>()?);
    published.expect_service()?;
    // Each is hung up on in the end.
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE))?;
        expect_hung_up(stream)?;
    }
    published.expect_service()
}

/// Demands that the peer closes the connection, whatever it says before.
fn expect_hung_up(stream: &mut UnixStream) -> CaseResult {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(anyhow!(error).context("the connection stays open")),
    }
}

/// Clients with certificates that then say nothing, or stop in the middle of a message.
fn silent_clients_block_nobody() -> CaseResult {
    let published = Published::start()?;
    block_on(async {
        let mut silent = Vec::new();
        for number in 0..40 {
            let mut channel = published.connect().await?;
            if number % 2 == 0 {
                // The length of a message that never comes.
                channel.get_mut().write_all(&[0, 0, 1, 0, b'x']).await?;
                channel.get_mut().flush().await?;
            }
            silent.push(channel);
        }
        published.expect_service()?;
        let mut asking = published.connect().await?;
        asking.send(ClientMessage::Status).await?;
        let answer = asking.next().await.context("no answer")??;
        ensure!(matches!(answer, CoordinatorMessage::Status(_)), "{answer:?}");
        Ok(())
    })?;
    published.expect_service()
}

fn garbage_is_refused() -> CaseResult {
    let published = Published::start()?;
    let noise: Vec<u8> = (0..5000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let framed = |content: &[u8]| [&u32::try_from(content.len()).unwrap().to_be_bytes(), content].concat();
    let garbage: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        noise.clone(),
        framed(&noise),
        framed(b""),
        framed(b"{\"version\":1}"),
        framed(&[0xc1; 100]),
        // MessagePack that announces more than there is: an array and a string of 4 GiB.
        framed(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
        framed(&[0x96, 0x01, 0xdb, 0xff, 0xff, 0xff, 0xff, b'x']),
        // Deeply nested arrays.
        framed(&[0x91; 8000]),
        vec![0, 0],
    ];
    for bytes in garbage {
        let mut stream = UnixStream::connect(&published.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // The peer may hang up while this is written.
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(Shutdown::Write));
        expect_hung_up(&mut stream)?;
    }
    published.expect_service()
}

fn oversized_frames_are_refused() -> CaseResult {
    let published = Published::start()?;
    for length in [8 << 10 | 1, 1 << 20, 1 << 31, u32::MAX] {
        let mut stream = UnixStream::connect(&published.socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(&length.to_be_bytes())?;
        // Refused by its length alone: not one byte of it is waited for.
        expect_hung_up(&mut stream)?;
    }
    block_on(async {
        for length in [(1 << 20) + 1, 1 << 31, u32::MAX] {
            let mut channel = published.connect().await?;
            channel.get_mut().write_all(&length.to_be_bytes()).await?;
            channel.get_mut().flush().await?;
            let end = tokio::time::timeout(Duration::from_secs(3), channel.next()).await?;
            ensure!(!matches!(end, Some(Ok(_))), "an oversized frame was answered");
        }
        Ok(())
    })?;
    published.expect_service()
}

/// Messages that make no sense at this place end their own connection.
fn messages_out_of_order_are_refused() -> CaseResult {
    let published = Published::start()?;
    block_on(async {
        let senseless = [
            ClientMessage::Input(b"hello".to_vec()),
            ClientMessage::InputEnd,
            ClientMessage::Control(lazaret::domain::session::ControlEvent::Interrupt),
        ];
        for message in senseless {
            let mut channel = published.connect().await?;
            channel.send(message).await?;
            let end = tokio::time::timeout(Duration::from_secs(3), channel.next()).await?;
            let refused = matches!(end, None | Some(Err(_)) | Some(Ok(CoordinatorMessage::Refused(_))));
            ensure!(refused, "it was answered: {end:?}");
        }
        // Two questions on one connection.
        let mut channel = published.connect().await?;
        channel.send(ClientMessage::Status).await?;
        // The coordinator may have hung up already.
        drop(channel.send(ClientMessage::Status).await);
        let answers = tokio::time::timeout(PATIENCE, channel.collect::<Vec<_>>()).await?;
        ensure!(answers.iter().filter(|answer| answer.is_ok()).count() == 1, "{answers:?}");
        Ok(())
    })?;
    let idle = || {
        let status = sessions::status(&published.environment, &[]).ok();
        status.is_some_and(|status| status["sessions"].as_array().is_some_and(Vec::is_empty))
    };
    wait_until("no session is left", PATIENCE, idle)?;
    published.expect_service()
}
