//! Sessions against a coordinator played in this process, over the real channel. Sessions that need
//! a terminal of their own, or signals, run in a child process: this test binary again, as
//! [`client_process`].

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::LocalModes;
use tokio::net::UnixListener;
use tokio::process::{Child, Command};

use super::*;
use crate::domain::ids::{ClientCliId, CoordinatorId, DomainId, Generation, SessionId};
use crate::domain::session::{ControlEvent, WindowSize};
use crate::identity::TrustAnchor;
use crate::identity::channel::{self, Face, ServerChannel};
use crate::sys::pty::{self, Pty};
use crate::wire::hello::Publication;

const WINDOW: u32 = 64 << 10;
const SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };

/// A published coordinator.
struct Coordinator {
    directory: tempfile::TempDir,
    listener: UnixListener,
    face: Face,
}

impl Coordinator {
    fn start() -> Self {
        let profile = "test".parse().unwrap();
        let domain = DomainId::derive(&profile, Path::new("/project"));
        let anchor = TrustAnchor::mint(&domain, &profile, Generation(1), &CoordinatorId::mint()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("hc.sock")).unwrap();
        Self { directory, listener, face: Face::new(anchor).unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("hc.sock")
    }

    async fn accept(&self) -> ServerChannel {
        let (stream, _) = self.listener.accept().await.unwrap();
        channel::accept(stream, &self.face).await.unwrap().0
    }

    /// Accepts a session and opens it.
    async fn open(&self) -> (ServerChannel, SessionRequest) {
        let mut channel = self.accept().await;
        match channel.next().await {
            Some(Ok(ClientMessage::Open { request, .. })) => {
                let opened = CoordinatorMessage::Opened { session: SessionId::mint(), input_window: WINDOW };
                channel.send(opened).await.unwrap();
                (channel, request)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn request(terminal: Terminal) -> SessionRequest {
    SessionRequest {
        argv: vec![b"true".to_vec()],
        env: vec![],
        directory: vec![],
        terminal,
        terminal_name: String::new(),
    }
}

fn exited(status: u8) -> CoordinatorMessage {
    CoordinatorMessage::Ended(SessionEnd::Exited(status))
}

fn output(bytes: &[u8]) -> CoordinatorMessage {
    CoordinatorMessage::Output(Stream::Output, bytes.to_vec())
}

/// Runs a session with pipes against `play`; gives how it ended and what it wrote.
async fn session<F: Future<Output = ()>>(
    input: &[u8],
    play: impl FnOnce(ServerChannel) -> F,
) -> (Outcome, Vec<u8>, Vec<u8>) {
    let coordinator = Coordinator::start();
    let (in_read, in_write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (out_read, out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (err_read, err) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let input = input.to_vec();
    std::thread::spawn(move || {
        let _ = File::from(in_write).write_all(&input);
    });
    let [outputs, errors] = [out_read, err_read].map(|fd| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(fd).read_to_end(&mut all).unwrap();
            all
        })
    });
    let serve = async {
        let (channel, _) = coordinator.open().await;
        play(channel).await;
    };
    let client = carry(&coordinator, Streams { input: in_read, output: out, error: err });
    let (outcome, ()) = tokio::join!(client, serve);
    (outcome.unwrap(), outputs.join().unwrap(), errors.join().unwrap())
}

async fn carry(coordinator: &Coordinator, streams: Streams) -> Result<Outcome, SessionError> {
    let client = ClientCliId::mint();
    let channel = channel::connect(coordinator.face.publication(), &coordinator.socket(), &client).await.unwrap();
    open(channel, request(Terminal::Pipes), None).await?.carry(streams, EscapeCharacter::None).await
}

/// Sends input back until its end, then ends with the status.
async fn echo(mut channel: ServerChannel, status: u8) {
    loop {
        match channel.next().await.unwrap().unwrap() {
            ClientMessage::Input(bytes) => {
                assert!(bytes.len() <= WINDOW as usize, "more input than was granted");
                let taken = u32::try_from(bytes.len()).unwrap();
                channel.send(CoordinatorMessage::Output(Stream::Output, bytes)).await.unwrap();
                channel.send(CoordinatorMessage::InputTaken(taken)).await.unwrap();
            }
            ClientMessage::InputEnd => break,
            other => panic!("{other:?}"),
        }
    }
    channel.send(exited(status)).await.unwrap();
}

#[tokio::test]
async fn input_output_and_status_pass_unchanged() {
    let input: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for status in [0, 1, 42, 130, 255] {
        let (outcome, output, error) = session(&input, |channel| echo(channel, status)).await;
        assert!(matches!(outcome, Outcome::Ended(SessionEnd::Exited(s)) if s == status));
        assert!(output == input && error.is_empty());
    }
}

#[tokio::test]
async fn streams_stay_apart_and_everything_is_written_before_the_end() {
    let (outcome, out, err) = session(b"", |mut channel| async move {
        for _ in 0..200 {
            channel.send(CoordinatorMessage::Output(Stream::Output, vec![b'o'; 60_000])).await.unwrap();
        }
        channel.send(CoordinatorMessage::Output(Stream::Error, b"e\n".to_vec())).await.unwrap();
        channel.send(exited(3)).await.unwrap();
    })
    .await;
    assert!(matches!(outcome, Outcome::Ended(SessionEnd::Exited(3))));
    assert_eq!((out.len(), err.as_slice()), (12_000_000, &b"e\n"[..]));
}

#[tokio::test]
async fn a_lost_coordinator_is_noticed_and_its_last_output_shown() {
    let (outcome, out, _) = session(b"", |mut channel| async move {
        channel.send(output(b"last words")).await.unwrap();
    })
    .await;
    assert!(matches!(outcome, Outcome::Lost), "{outcome:?}");
    assert_eq!(out, b"last words");
}

#[tokio::test]
async fn a_refusal_is_an_answer() {
    let coordinator = Coordinator::start();
    let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let serve = async {
        let mut channel = coordinator.accept().await;
        channel.next().await.unwrap().unwrap();
        channel.send(CoordinatorMessage::Refused(Refusal::GoingDown)).await.unwrap();
    };
    let client = carry(&coordinator, Streams { input: null(), output: null(), error: null() });
    let (outcome, ()) = tokio::join!(client, serve);
    assert!(matches!(outcome, Err(SessionError::Refused(Refusal::GoingDown))));
}

#[tokio::test]
async fn a_closed_output_ends_the_session() {
    let coordinator = Coordinator::start();
    let (in_read, _in_write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (out_read, out) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    drop(out_read);
    let null = File::options().write(true).open("/dev/null").unwrap();
    let serve = async {
        let (mut channel, _) = coordinator.open().await;
        channel.send(output(b"x")).await.unwrap();
        // The client leaves without another word.
        assert!(!matches!(channel.next().await, Some(Ok(_))));
    };
    let client = carry(&coordinator, Streams { input: in_read, output: out, error: null.into() });
    let (outcome, ()) = tokio::join!(client, serve);
    assert!(matches!(outcome, Ok(Outcome::OutputClosed)), "{outcome:?}");
}

// What follows runs the client in a process of its own.

/// The child process: connects to the coordinator that the environment names and carries a session
/// on its own standard streams. Its exit status says how it ended.
#[tokio::test(flavor = "current_thread")]
#[ignore = "runs only as a child of other tests"]
async fn client_process() {
    let Ok(publication) = std::env::var("LAZARET_TEST_PUBLICATION") else { return };
    let publication: Publication = serde_json::from_str(&publication).unwrap();
    let socket = PathBuf::from(std::env::var_os("LAZARET_TEST_SOCKET").unwrap());
    let interactive = rustix::termios::isatty(std::io::stdin());
    let terminal = if interactive { Terminal::Interactive(SIZE) } else { Terminal::Pipes };
    let channel = channel::connect(&publication, &socket, &ClientCliId::mint()).await.unwrap();
    let session = open(channel, request(terminal), None).await.unwrap();
    let streams = Streams {
        input: std::io::stdin().as_fd().try_clone_to_owned().unwrap(),
        output: std::io::stdout().as_fd().try_clone_to_owned().unwrap(),
        error: std::io::stderr().as_fd().try_clone_to_owned().unwrap(),
    };
    let status = match session.carry(streams, EscapeCharacter::Byte(b'~')).await.unwrap() {
        Outcome::Ended(SessionEnd::Exited(status)) => i32::from(status),
        Outcome::Lost => 201,
        Outcome::Disconnected => 202,
        Outcome::Signalled(signal) => crate::sys::signals::die_by(signal),
        Outcome::OutputClosed => crate::sys::signals::die_by(Signal::SIGPIPE),
        other => panic!("{other:?}"),
    };
    std::process::exit(status);
}

fn client(coordinator: &Coordinator) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["cli::session::tests::client_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("LAZARET_TEST_PUBLICATION", serde_json::to_string(coordinator.face.publication()).unwrap());
    command.env("LAZARET_TEST_SOCKET", coordinator.socket());
    command.kill_on_drop(true);
    command
}

/// A client with a terminal of its own.
fn terminal_client(coordinator: &Coordinator) -> (Child, Pty) {
    let pty = pty::open(SIZE).unwrap();
    let mut command = client(coordinator);
    crate::sys::process::own_terminal(&mut command, pty.slave.try_clone().unwrap()).unwrap();
    (command.spawn().unwrap(), pty)
}

fn is_raw(terminal: BorrowedFd<'_>) -> bool {
    !rustix::termios::tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ICANON)
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads from the terminal until the text was seen; gives all of it.
async fn shown(pty: &Pty, text: &str) -> String {
    let mut all = Vec::new();
    until(text, || {
        let mut polled = [rustix::event::PollFd::new(&pty.master, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut polled, Some(&now)).unwrap() > 0 {
            let mut buffer = [0; 4096];
            let count = rustix::io::read(&pty.master, &mut buffer).unwrap();
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&all).contains(text)
    })
    .await;
    String::from_utf8_lossy(&all).into_owned()
}

fn signal(child: &Child, signal: Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}

async fn ended(child: &mut Child) -> std::process::ExitStatus {
    tokio::time::timeout(Duration::from_secs(10), child.wait()).await.expect("the client ends").unwrap()
}

#[tokio::test]
async fn the_terminal_is_raw_during_a_session_and_restored_after_it() {
    let coordinator = Coordinator::start();
    let (mut child, pty) = terminal_client(&coordinator);
    let (mut channel, request) = coordinator.open().await;
    assert_eq!(request.terminal, Terminal::Interactive(SIZE));
    until("raw mode", || is_raw(pty.slave.as_fd())).await;
    // Keys that a terminal would turn into signals are bytes now.
    rustix::io::write(&pty.master, b"\x03\x1a\x1c\x04").unwrap();
    let mut keys = Vec::new();
    while keys.len() < 4 {
        match channel.next().await.unwrap().unwrap() {
            ClientMessage::Input(bytes) => keys.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(keys, b"\x03\x1a\x1c\x04");
    pty::set_size(pty.master.as_fd(), WindowSize { rows: 50, columns: 132 }).unwrap();
    let resized = channel.next().await.unwrap().unwrap();
    assert_eq!(resized, ClientMessage::Resize(WindowSize { rows: 50, columns: 132 }));
    channel.send(output(b"goodbye\r\n")).await.unwrap();
    channel.send(exited(7)).await.unwrap();
    assert_eq!(ended(&mut child).await.code(), Some(7));
    assert!(!is_raw(pty.slave.as_fd()));
    shown(&pty, "goodbye").await;
}

#[tokio::test]
async fn every_way_to_end_restores_the_terminal() {
    use std::os::unix::process::ExitStatusExt;
    for way in ["lost", "escape", "TERM", "HUP", "INT", "QUIT"] {
        let coordinator = Coordinator::start();
        let (mut child, pty) = terminal_client(&coordinator);
        let (mut channel, _) = coordinator.open().await;
        channel.send(output(b"\x1b[?1049h\x1b[?25l in vim")).await.unwrap();
        shown(&pty, "in vim").await;
        assert!(is_raw(pty.slave.as_fd()));
        let mut channel = Some(channel);
        match way {
            "lost" => drop(channel.take()),
            "escape" => drop(rustix::io::write(&pty.master, b"~.").unwrap()),
            name => signal(&child, format!("SIG{name}").parse().unwrap()),
        }
        let status = ended(&mut child).await;
        match way {
            "lost" => assert_eq!(status.code(), Some(201)),
            "escape" => assert_eq!(status.code(), Some(202)),
            name => assert_eq!(status.signal(), Some(format!("SIG{name}").parse::<Signal>().unwrap() as i32)),
        }
        assert!(!is_raw(pty.slave.as_fd()), "{way}");
        shown(&pty, "\u{1b}[?25h").await;
    }
}

#[tokio::test]
async fn a_client_stopped_from_outside_gives_the_terminal_back_meanwhile() {
    let coordinator = Coordinator::start();
    let (mut child, pty) = terminal_client(&coordinator);
    let (mut channel, _) = coordinator.open().await;
    until("raw mode", || is_raw(pty.slave.as_fd())).await;
    signal(&child, Signal::SIGTSTP);
    until("a restored terminal", || !is_raw(pty.slave.as_fd())).await;
    let pid = child.id().unwrap();
    until("a stopped client", || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")).await;
    signal(&child, Signal::SIGCONT);
    until("raw mode again", || is_raw(pty.slave.as_fd())).await;
    assert_eq!(channel.next().await.unwrap().unwrap(), ClientMessage::Resize(SIZE));
    channel.send(exited(0)).await.unwrap();
    assert_eq!(ended(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn a_signal_passes_even_while_the_session_takes_no_input() {
    use std::os::unix::process::ExitStatusExt;
    let coordinator = Coordinator::start();
    let mut command = client(&coordinator);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let flood = tokio::spawn(async move {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, &vec![b'x'; 4 << 20]).await;
    });
    let (mut channel, _) = coordinator.open().await;
    let mut received = 0;
    while received < WINDOW as usize {
        match channel.next().await.unwrap().unwrap() {
            ClientMessage::Input(bytes) => received += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, WINDOW as usize, "the client stays within its credit");
    signal(&child, Signal::SIGINT);
    assert_eq!(channel.next().await.unwrap().unwrap(), ClientMessage::Control(ControlEvent::Interrupt));
    // The session does not care; the second signal ends the client.
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(&mut child).await.signal(), Some(Signal::SIGTERM as i32));
    flood.abort();
}

#[tokio::test]
async fn a_paste_of_a_megabyte_arrives_whole() {
    let coordinator = Coordinator::start();
    let (mut child, pty) = terminal_client(&coordinator);
    let (mut channel, _) = coordinator.open().await;
    until("raw mode", || is_raw(pty.slave.as_fd())).await;
    let paste: Vec<u8> = (0..1_000_000u32).map(|n| b"abc~.\n"[(n % 6) as usize]).collect();
    let (master, text) = (pty.master.try_clone().unwrap(), paste.clone());
    let typing = std::thread::spawn(move || File::from(master).write_all(&text).unwrap());
    let mut received = Vec::new();
    while received.len() < paste.len() {
        match channel.next().await.unwrap().unwrap() {
            ClientMessage::Input(bytes) => {
                channel.send(CoordinatorMessage::InputTaken(u32::try_from(bytes.len()).unwrap())).await.unwrap();
                received.extend(bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    typing.join().unwrap();
    assert!(received == paste);
    channel.send(exited(0)).await.unwrap();
    assert_eq!(ended(&mut child).await.code(), Some(0));
}
