//! Attempts that must be answered: echoes, names and connections.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockProtocol, recv, send};

use super::dns::{self, Answer, Record};
use super::sockets::{connection, datagram, start_connection};
use super::verdict::{self, Connection, Verdict, fails, holds, words};
use super::{echo, observation};
use crate::domain::network::{ProbeObservation, ProbePlan};

/// The port of resolvers.
const DNS_PORT: u16 = 53;

/// After how long without an answer a packet is sent again.
const RETRY: Duration = Duration::from_millis(400);

/// Most names, times resolvers, times two kinds of address that are asked for at once.
const QUESTIONS: usize = 256;

/// Everything that must be answered, and what was heard so far.
#[derive(Debug)]
pub(super) struct Answers {
    /// What is asked, in the order of the plan.
    questions: Vec<Question>,
    /// The names that must resolve; questions refer to them by index.
    names: Vec<String>,
    /// Whether a question was left out for there being too many.
    cut: bool,
}

/// One packet, or connection, that wants an answer.
#[derive(Debug)]
struct Question {
    /// What is asked.
    kind: Kind,
    /// Its socket, or why there is none.
    socket: Result<OwnedFd, Errno>,
    /// The packet, to be sent again.
    packet: Vec<u8>,
    /// When the packet was last sent.
    sent: Instant,
    /// What was heard.
    heard: Option<Heard>,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// An echo.
    Echo(IpAddr),
    /// The address of a name, by its index, of a resolver.
    Name(usize, IpAddr),
    /// A connection.
    Connect(SocketAddr),
}

/// What was heard.
#[derive(Debug, Clone, Copy)]
enum Heard {
    /// An echo's reply.
    Reply(Duration),
    /// A resolver's answer.
    Answer(Answer),
    /// A connection's end, good or bad.
    Connection(Connection),
    /// A socket's error.
    Error(Errno),
}

impl Answers {
    /// Asks everything that the plan names.
    pub(super) fn open(plan: &ProbePlan) -> Self {
        let now = Instant::now();
        let mut questions = Vec::new();
        let mut ask = |kind, socket: Result<OwnedFd, Errno>, packet: Vec<u8>| {
            let mut question = Question { kind, socket, packet, sent: now, heard: None };
            question.send(now);
            questions.push(question);
        };
        for &address in &plan.echo {
            let protocol = if address.is_ipv4() { SockProtocol::Icmp } else { SockProtocol::IcmpV6 };
            ask(Kind::Echo(address), datagram(address, 0, Some(protocol)), echo::request(address, 1));
        }
        for &endpoint in &plan.connect {
            ask(Kind::Connect(endpoint), start_connection(endpoint, None), Vec::new());
        }
        let mut asked = 0;
        for (index, name) in plan.resolve.iter().enumerate() {
            for (&resolver, record) in plan.resolvers.iter().flat_map(|r| [(r, Record::A), (r, Record::Aaaa)]) {
                let id = u16::try_from(asked).unwrap_or_default();
                asked += 1;
                // A name that DNS cannot carry has no question and so no answer.
                if let Ok(packet) = dns::query(id, name, record)
                    && asked <= QUESTIONS
                {
                    ask(Kind::Name(index, resolver), datagram(resolver, DNS_PORT, None), packet);
                }
            }
        }
        Self { questions, names: plan.resolve.clone(), cut: asked > QUESTIONS }
    }

    /// Tells whether every echo was answered.
    pub(super) fn echoed(&self) -> bool {
        self.questions.iter().all(|question| question.heard.is_some() || !matches!(question.kind, Kind::Echo(_)))
    }

    /// Tells whether nothing more needs to be heard.
    pub(super) fn complete(&self) -> bool {
        self.questions.iter().all(|question| match question.kind {
            Kind::Name(index, _) => question.heard.is_some() || self.resolved(index).is_some(),
            _ => question.heard.is_some(),
        })
    }

    /// Listens until `done` says so or the time is over.
    pub(super) fn advance(&mut self, until: Instant, done: impl Fn(&Self) -> bool) {
        loop {
            let now = Instant::now();
            for question in self.questions.iter_mut().filter(|question| question.heard.is_none()) {
                question.listen(now);
            }
            let left = until.saturating_duration_since(Instant::now());
            if done(self) || left.is_zero() {
                return;
            }
            self.sleep(left);
        }
    }

    /// Sleeps until a socket has news, a packet must be sent again, or the time is over.
    fn sleep(&self, left: Duration) {
        let open = self.questions.iter().filter(|question| question.heard.is_none());
        let (mut watched, mut limit) = (Vec::new(), left);
        for question in open {
            if let Ok(socket) = &question.socket {
                watched.push(PollFd::new(socket.as_fd(), question.events()));
                limit = limit.min(question.until_retry());
            }
        }
        // poll counts in whole milliseconds; rounding down would make the last one a busy loop.
        let timeout = PollTimeout::try_from(limit + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut watched, timeout);
    }

    /// Gives the address that a name was found to have.
    fn resolved(&self, index: usize) -> Option<(IpAddr, IpAddr)> {
        self.questions.iter().find_map(|question| match (question.kind, question.heard) {
            (Kind::Name(asked, resolver), Some(Heard::Answer(Answer::Address(address)))) if asked == index => {
                Some((address, resolver))
            }
            _ => None,
        })
    }

    /// Judges everything by what was heard.
    pub(super) fn judge(&self) -> Vec<ProbeObservation> {
        let echoes = self.questions.iter().filter_map(|question| match question.kind {
            Kind::Echo(address) => Some(observation(format!("permit {address} (echo)"), question.echo_verdict())),
            _ => None,
        });
        let names = self.names.iter().enumerate();
        let names = names.map(|(index, name)| observation(format!("resolve {name}"), self.name_verdict(index)));
        let connections = self.questions.iter().filter_map(|question| match question.kind {
            Kind::Connect(endpoint) => {
                let verdict = verdict::reachable(question.connection());
                Some(observation(format!("permit {endpoint} (tcp)"), verdict))
            }
            _ => None,
        });
        echoes.chain(names).chain(connections).collect()
    }

    /// Judges a name: one resolver that knows an address is enough, as it is for programs.
    fn name_verdict(&self, index: usize) -> Verdict {
        if let Some((address, resolver)) = self.resolved(index) {
            return holds(format!("{address}, by {resolver}"));
        }
        let heard = self.questions.iter().filter_map(|question| match question.kind {
            Kind::Name(asked, resolver) if asked == index => Some(format!("{resolver}: {}", question.name_words())),
            _ => None,
        });
        let mut heard: Vec<String> = heard.collect();
        heard.dedup();
        match (heard.is_empty(), self.cut) {
            (false, _) => fails(heard.join(", ")),
            (true, false) => fails("no resolver can be asked for it".into()),
            (true, true) => fails("not asked for: too many names".into()),
        }
    }
}

impl Question {
    /// Sends the packet, if there is one.
    fn send(&mut self, now: Instant) {
        self.sent = now;
        let Ok(socket) = &self.socket else { return };
        if !self.packet.is_empty()
            && let Err(errno) = send(socket.as_raw_fd(), &self.packet, MsgFlags::empty())
            && errno != Errno::EAGAIN
        {
            self.heard = Some(Heard::Error(errno));
        }
    }

    /// Takes what the socket has, and sends the packet again when it is time.
    fn listen(&mut self, now: Instant) {
        self.heard = match (&self.socket, self.kind) {
            (Err(errno), _) => Some(Heard::Error(*errno)),
            (Ok(_), Kind::Connect(_)) => match connection(&self.socket) {
                Connection::Pending => None,
                settled => Some(Heard::Connection(settled)),
            },
            (Ok(socket), _) => self.receive(socket),
        };
        if self.heard.is_none() && self.until_retry().is_zero() {
            self.send(now);
        }
    }

    /// Takes packets until one is an answer.
    fn receive(&self, socket: &OwnedFd) -> Option<Heard> {
        let mut buffer = [0; 1500];
        loop {
            let packet = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => &buffer[..length],
                Err(Errno::EAGAIN) => return None,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Some(Heard::Error(errno)),
            };
            match self.kind {
                Kind::Echo(address) if echo::is_reply(address, packet) => {
                    return Some(Heard::Reply(self.sent.elapsed()));
                }
                Kind::Name(..) => {
                    if let Some(answer) = dns::answer(&self.packet, packet) {
                        return Some(Heard::Answer(answer));
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives what to wait for on the socket.
    fn events(&self) -> PollFlags {
        if matches!(self.kind, Kind::Connect(_)) { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    /// Gives the time until the packet is sent again.
    fn until_retry(&self) -> Duration {
        if self.packet.is_empty() { Duration::MAX } else { RETRY.saturating_sub(self.sent.elapsed()) }
    }

    /// Gives how far a connection came. Reading it from the socket a second time would lose an error.
    fn connection(&self) -> Connection {
        match self.heard {
            Some(Heard::Connection(connection)) => connection,
            Some(Heard::Error(errno)) => Connection::NotStarted(errno),
            _ => Connection::Pending,
        }
    }

    /// Judges an echo.
    fn echo_verdict(&self) -> Verdict {
        match self.heard {
            Some(Heard::Reply(after)) => holds(format!("answered after {} µs", after.as_micros())),
            Some(Heard::Error(errno)) => fails(words(errno)),
            _ => fails("no answer in time".into()),
        }
    }

    /// Says in words what a resolver answered.
    fn name_words(&self) -> String {
        match self.heard {
            Some(Heard::Answer(Answer::Address(address))) => address.to_string(),
            Some(Heard::Answer(Answer::Empty)) => "no address".into(),
            Some(Heard::Answer(Answer::Error(3))) => "no such name".into(),
            Some(Heard::Answer(Answer::Error(code))) => format!("error code {code}"),
            Some(Heard::Error(errno)) => words(errno),
            _ => "no answer in time".into(),
        }
    }
}
