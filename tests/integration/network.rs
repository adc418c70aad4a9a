//! The network of a sandbox: what is reached, what is not, names, and the probe before publication.
//!
//! "Not reached" is shown at the host's side as well: no connection and no packet came there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::domain::network::{Ipv6, ProbeReport};
use lazaret::policy::derive;
use lazaret::store::DomainStore;

use crate::harness::network::{
    DENIED, DENIED_RESOLVER, DENIED_TOO, DENIED_V6, LOOPBACK_RESOLVER, PERMITTED, PERMITTED_V6, RESOLVER,
};
use crate::harness::world::world;
use crate::harness::{Case, CaseResult, Environment, Need, Output, case, eventually, root};

pub fn cases() -> Vec<Case> {
    // Most cases count what reaches a host that others contact on purpose, or change the resolver
    // that all share.
    const NEEDS: &[Need] = &[Need::Sandbox, Need::TestNetwork, Need::Root, Need::Alone];
    vec![
        case("a_permitted_host_is_reached", NEEDS, a_permitted_host_is_reached),
        case("a_denied_host_is_not_reached", NEEDS, a_denied_host_is_not_reached),
        case("a_more_specific_allow_opens", NEEDS, a_more_specific_allow_opens),
        case("a_deny_inside_an_allow_holds", NEEDS, a_deny_inside_an_allow_holds),
        case("a_denial_wins_over_an_equal_permission", NEEDS, a_denial_wins_over_an_equal_permission),
        case("everything_can_be_denied_but_one_host", NEEDS, everything_can_be_denied_but_one_host),
        case("case_c16_a_loopback_resolver", NEEDS, case_c16_a_loopback_resolver),
        case("case_c16_a_resolver_behind_deny_routes", NEEDS, case_c16_a_resolver_behind_deny_routes),
        case("case_c16_a_resolver_that_changes", NEEDS, case_c16_a_resolver_that_changes),
        case("configured_resolvers_are_asked", NEEDS, configured_resolvers_are_asked),
        case("ipv6_is_off", NEEDS, ipv6_is_off),
        case("ipv6_comes_with_an_equal_policy", NEEDS, ipv6_comes_with_an_equal_policy),
        case("a_failed_probe_refuses_publication", NEEDS, a_failed_probe_refuses_publication),
        case("what_a_probe_asks_for_is_tried", NEEDS, what_a_probe_asks_for_is_tried),
        case("readiness_is_recorded", NEEDS, readiness_is_recorded),
        case("ping_works", NEEDS, ping_works),
        case("what_is_not_there_says_so", NEEDS, what_is_not_there_says_so),
        case("services_inside_stay_inside", NEEDS, services_inside_stay_inside),
    ]
}

/// Tries to reach hosts from inside: `tcp` and `udp` to port 80, all at once.
const REACH: &str = r#"
import select, socket, sys, time
waiting = {}
for host in sys.argv[1:]:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    for kind, name in [(socket.SOCK_STREAM, 'tcp'), (socket.SOCK_DGRAM, 'udp')]:
        s = socket.socket(family, kind)
        s.setblocking(False)
        try:
            s.connect((host, 80))
        except BlockingIOError:
            pass
        except OSError as error:
            print(name, host, error.strerror)
            continue
        waiting[s] = (name, host)
        if name == 'udp':
            s.send(b'hello')
end = time.monotonic() + 0.7
while waiting and time.monotonic() < end:
    tcp = [s for s, (name, _) in waiting.items() if name == 'tcp']
    udp = [s for s, (name, _) in waiting.items() if name == 'udp']
    readable, writable, _ = select.select(udp, tcp, [], end - time.monotonic() if end > time.monotonic() else 0)
    for s in readable + writable:
        name, host = waiting.pop(s)
        error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        print(name, host, 'reached' if not error else 'error %d' % error)
for name, host in waiting.values():
    print(name, host, 'silence')
"#;

/// Makes surroundings whose Domain stays between the case's commands.
fn surroundings(more: &str) -> Result<Environment> {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", &format!("linger = \"60s\"\n{more}"))?;
    Ok(environment)
}

fn python(environment: &Environment, script: &str, arguments: &[&str]) -> Result<Output> {
    environment.lazaret(["run", "--", "python3", "-"]).args(arguments).input(script).run()?.ok()
}

/// Gives what became of a TCP connection and a datagram to each host, by `tcp HOST` and `udp HOST`.
fn reach(environment: &Environment, hosts: &[&str]) -> Result<BTreeMap<String, String>> {
    let output = python(environment, REACH, hosts)?.stdout();
    let parsed = output.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        Some((format!("{} {}", words.next()?, words.next()?), words.next()?.to_owned()))
    });
    Ok(parsed.collect())
}

/// Demands that each host is reached over TCP and UDP, or is not, by what the client and the host see.
fn expect_reached(environment: &Environment, reached: &[&str], not_reached: &[&str]) -> CaseResult {
    let hosts: Vec<_> = reached.iter().chain(not_reached).copied().collect();
    // The first command starts the Domain, whose probe is not what is counted here.
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    let before = root::contacts()?;
    let outcomes = reach(environment, &hosts)?;
    let after = root::contacts()?;
    let count = |key: &str| {
        let of = |contacts: &BTreeMap<String, u64>| contacts.get(key).copied().unwrap_or_default();
        of(&after) - of(&before)
    };
    for host in reached {
        for transport in ["tcp", "udp"] {
            let key = format!("{transport} {host}");
            ensure!(outcomes.get(&key).is_some_and(|seen| seen == "reached"), "{key} is not reached: {outcomes:?}");
            ensure!(count(&key) == 1, "{key} saw {} contacts", count(&key));
        }
    }
    for host in not_reached {
        for transport in ["tcp", "udp"] {
            let key = format!("{transport} {host}");
            let seen = outcomes.get(&key).context("no outcome")?;
            ensure!(seen != "reached", "{key} is reached");
            ensure!(count(&key) == 0, "{key} saw a contact, though the client saw {seen}");
        }
        let packets = count(&format!("packet {host}"));
        ensure!(packets == 0, "{packets} packets went to {host}");
    }
    Ok(())
}

fn a_permitted_host_is_reached() -> CaseResult {
    let environment = surroundings("")?;
    expect_reached(&environment, &[PERMITTED], &[])?;
    let curl = environment.lazaret(["run", "--", "curl", "--silent", "--show-error", "http://permitted.test/"]);
    curl.run()?.ok()?.expect_stdout(&format!("hello from {PERMITTED}\n"))?;
    Ok(())
}

/// What curl(1) exits with when the kernel gives a connection up.
const CURL_TIMED_OUT: i32 = 28;

fn a_denied_host_is_not_reached() -> CaseResult {
    let environment = surroundings("")?;
    expect_reached(&environment, &[PERMITTED], &[DENIED, DENIED_TOO, "172.16.0.1"])?;
    let begin = Instant::now();
    let curl = environment.lazaret(["run", "--", "curl", "--silent", "--show-error", "http://denied.test/"]);
    curl.run()?.expect_code(CURL_TIMED_OUT)?.expect_stderr("denied.test")?;
    // docs/limits.md says about 7 seconds.
    ensure!(begin.elapsed() < Duration::from_secs(12), "it took {:?}", begin.elapsed());
    Ok(())
}

fn a_more_specific_allow_opens() -> CaseResult {
    let environment = surroundings("[network]\nallow = [\"10.9.0.0/24\"]")?;
    expect_reached(&environment, &[PERMITTED, DENIED], &[DENIED_TOO])
}

fn a_deny_inside_an_allow_holds() -> CaseResult {
    let environment = surroundings("[network]\nallow = [\"10.9.0.0/16\"]\ndeny = [\"10.9.0.0/30\"]")?;
    expect_reached(&environment, &[PERMITTED], &[DENIED, DENIED_TOO])?;
    // Its neighbour outside the inner prefix is open.
    let script =
        format!("import socket; print(socket.create_connection(('{DENIED_RESOLVER}', 53), 2).getpeername()[0])");
    python(&environment, &script, &[])?.expect_stdout(DENIED_RESOLVER)?;
    Ok(())
}

/// One prefix in both is refused in one file; where the common file denies it, the denial wins.
fn a_denial_wins_over_an_equal_permission() -> CaseResult {
    let environment = surroundings("[network]\nallow = [\"203.0.113.0/24\"]\ndeny = [\"203.0.113.0/24\"]")?;
    let run = || environment.lazaret(["run", "--", "true"]).run();
    run()?.expect_code(125)?.expect_stderr("203.0.113.0/24")?.expect_stderr("test.toml")?;
    environment.profile("test", "[network]\nallow = [\"10.0.0.0/8\"]")?;
    run()?.expect_code(125)?.expect_stderr("10.0.0.0/8")?;
    environment.profile("test", "[network]\nallow = [\"198.51.100.1/32\"]")?;
    let common = environment.config().join("lazaret/config.toml");
    fs::write(&common, "default_profile = \"test\"\n[network]\ndeny = [\"198.51.100.1/32\"]\n")?;
    let output = run()?;
    if output.code() == 125 {
        output.expect_stderr("198.51.100.1/32")?;
        return Ok(());
    }
    output.ok()?;
    expect_reached(&environment, &[], &[PERMITTED])
}

fn everything_can_be_denied_but_one_host() -> CaseResult {
    let environment = surroundings(&format!("[network]\nallow = [\"{PERMITTED}/32\"]\ndeny = [\"0.0.0.0/0\"]"))?;
    expect_reached(&environment, &[PERMITTED], &[DENIED, DENIED_TOO, RESOLVER])?;
    // Names still resolve: the helper asks the host's resolver.
    expect_resolver(&environment, RESOLVER)
}

/// The run's resolver configuration, put back at the end.
struct HostResolver(String);

impl HostResolver {
    fn set(address: &str) -> Result<Self> {
        let path = world().resolv_conf.as_ref().context("the test network has one")?;
        let before = fs::read_to_string(path)?;
        fs::write(path, format!("nameserver {address}\n"))?;
        Ok(Self(before))
    }
}

impl Drop for HostResolver {
    fn drop(&mut self) {
        if let Some(path) = &world().resolv_conf {
            fs::write(path, &self.0).unwrap();
        }
    }
}

/// Gives the addresses of a name as a session sees them.
fn resolve(environment: &Environment, name: &str) -> Result<String> {
    Ok(environment.lazaret(["run", "--", "getent", "ahostsv4", name]).run()?.stdout())
}

/// Demands that names resolve, and that the resolver which answers is this one.
fn expect_resolver(environment: &Environment, resolver: &str) -> CaseResult {
    let permitted = resolve(environment, "permitted.test")?;
    ensure!(permitted.starts_with(PERMITTED), "permitted.test is {permitted:?}");
    let answering = resolve(environment, "resolver.test")?;
    ensure!(answering.starts_with(resolver), "the resolver that answers is {answering:?}, not {resolver}");
    Ok(())
}

fn case_c16_a_loopback_resolver() -> CaseResult {
    let _host = HostResolver::set(LOOPBACK_RESOLVER)?;
    let environment = surroundings("")?;
    expect_resolver(&environment, LOOPBACK_RESOLVER)?;
    // The host's loopback is open to the helper's queries and to nothing else.
    let inside = resolv_conf(&environment)?;
    ensure!(inside == "nameserver 10.0.2.3\n", "resolv.conf inside is {inside:?}");
    Ok(())
}

fn case_c16_a_resolver_behind_deny_routes() -> CaseResult {
    let _host = HostResolver::set(DENIED_RESOLVER)?;
    let environment = surroundings("")?;
    expect_resolver(&environment, DENIED_RESOLVER)?;
    let output = python(&environment, REACH, &[DENIED_RESOLVER])?;
    ensure!(!output.stdout().contains("reached"), "the resolver itself is open: {output}");
    Ok(())
}

fn case_c16_a_resolver_that_changes() -> CaseResult {
    let _host = HostResolver::set(LOOPBACK_RESOLVER)?;
    let environment = surroundings("")?;
    expect_resolver(&environment, LOOPBACK_RESOLVER)?;
    // One session that goes on asking is what a developer's agent is.
    let script = "import socket, time\nlast, end = None, time.monotonic() + 20\n\
        while time.monotonic() < end:\n  \
          now = socket.gethostbyname('resolver.test')\n  \
          if now != last: print(now, flush=True)\n  \
          last = now\n  \
          if now == '10.9.0.53': break\n  \
          time.sleep(0.05)\n";
    let mut asking = environment.lazaret(["run", "--", "python3", "-c", script]).spawn()?;
    asking.close_input();
    for resolver in [RESOLVER, DENIED_RESOLVER] {
        let _changed = HostResolver::set(resolver)?;
        // libslirp reads the file again once a second.
        let changed = || resolve(&environment, "resolver.test").ok()?.starts_with(resolver).then_some(());
        eventually(&format!("{resolver} answers"), Duration::from_secs(5), changed)?;
        if resolver == DENIED_RESOLVER {
            let output = asking.wait(Duration::from_secs(10))?.ok()?;
            let seen = output.stdout();
            ensure!(seen == format!("{LOOPBACK_RESOLVER}\n{RESOLVER}\n{DENIED_RESOLVER}\n"), "{output}");
            break;
        }
    }
    Ok(())
}

fn resolv_conf(environment: &Environment) -> Result<String> {
    Ok(environment.lazaret(["run", "--", "cat", "/etc/resolv.conf"]).run()?.ok()?.stdout())
}

fn configured_resolvers_are_asked() -> CaseResult {
    let _host = HostResolver::set(LOOPBACK_RESOLVER)?;
    let environment = surroundings(&format!("[network]\ndns = [\"{RESOLVER}\"]"))?;
    expect_resolver(&environment, RESOLVER)?;
    ensure!(resolv_conf(&environment)? == format!("nameserver {RESOLVER}\n"));
    drop(environment);
    let environment = surroundings(&format!("[network]\ndns = [\"{DENIED_RESOLVER}\"]"))?;
    expect_resolver(&environment, DENIED_RESOLVER)?;
    expect_reached(&environment, &[PERMITTED], &[DENIED])
}

/// Prints every address of a family that a session has, and what happens when it connects by it.
const IPV6: &str = r#"
import socket, sys
try:
    table = open('/proc/net/if_inet6').read()
except FileNotFoundError:
    table = ''
print('addresses', ' '.join(line.split()[0] for line in table.splitlines()))
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 80), 0.5)
        print(host, 'reached')
    except OSError as error:
        print(host, error.strerror or 'silence')
"#;

fn ipv6_is_off() -> CaseResult {
    let environment = surroundings("")?;
    let hosts = [PERMITTED_V6, DENIED_V6, "::1", "fd00::2", "fe80::1%2", "64:ff9b::c633:6401"];
    let output = python(&environment, IPV6, &hosts)?;
    let text = output.stdout();
    ensure!(text.lines().count() == hosts.len() + 1, "{output}");
    ensure!(!text.contains("reached"), "{output}");
    ensure!(text.lines().next() == Some("addresses "), "there are IPv6 addresses: {output}");
    let shown = environment.lazaret(["run", "--", "ip", "-6", "address"]).run()?;
    ensure!(!shown.stdout().contains("inet6"), "{shown}");
    // A name that has both kinds of addresses is reached without delay.
    let begin = Instant::now();
    let curl = environment.lazaret(["run", "--", "curl", "--silent", "http://permitted.test/"]).run()?.ok()?;
    curl.expect_stdout("hello")?;
    ensure!(begin.elapsed() < Duration::from_secs(3), "it took {:?}", begin.elapsed());
    Ok(())
}

fn ipv6_comes_with_an_equal_policy() -> CaseResult {
    let environment = surroundings("[network]\nipv6 = true\ndeny = [\"203.0.113.0/24\", \"2001:db8:99::/48\"]")?;
    let nat64 = "64:ff9b::a09:1";
    let denied = [DENIED, DENIED_V6, nat64, "64:ff9b::cb00:7101", "2001:db8:99::1", "::ffff:10.9.0.1"];
    expect_reached(&environment, &[PERMITTED, PERMITTED_V6], &denied)
}

/// Each way in which a profile's own probe can fail, with a part of the reason that it must give.
fn a_failed_probe_refuses_publication() -> CaseResult {
    let environment = surroundings("")?;
    let failures = [
        (format!("connect = [\"{PERMITTED}:81\"]"), vec![format!("{PERMITTED}:81"), "refused".into()]),
        (format!("connect = [\"{DENIED}:80\"]"), vec![format!("{DENIED}:80")]),
        ("resolve = [\"unknown.test\"]".to_owned(), vec!["unknown.test".to_owned()]),
        (format!("denied = [\"{PERMITTED}\"]"), vec![PERMITTED.to_owned()]),
    ];
    for (probe, reasons) in failures {
        environment.profile("test", &format!("[network.probe]\n{probe}"))?;
        let output = environment.lazaret(["run", "--", "echo", "it ran"]).run()?.expect_code(125)?;
        ensure!(!output.stdout().contains("it ran"), "a session ran though the probe failed: {output}");
        for reason in reasons {
            ensure!(output.stderr().contains(&reason), "the reason lacks '{reason}': {output}");
        }
        ensure!(!environment.runtime_root()?.publication().exists(), "a record was published");
        environment.expect_nothing_left(Duration::from_secs(2))?;
    }
    // The store says that it ended clean, and the next start works.
    environment.profile("test", "")?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    Ok(())
}

fn what_a_probe_asks_for_is_tried() -> CaseResult {
    let probe = format!(
        "[network]\nallow = [\"{DENIED}/32\"]\n[network.probe]\nresolve = [\"permitted.test\"]\n\
         connect = [\"{PERMITTED}:80\", \"{DENIED}:80\"]\ndenied = [\"{DENIED_TOO}\"]"
    );
    let environment = surroundings(&probe)?;
    let before = root::contacts()?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    let after = root::contacts()?;
    let grew = |key: &str| after.get(key) > before.get(key);
    ensure!(grew(&format!("tcp {PERMITTED}")) && grew(&format!("tcp {DENIED}")), "the endpoints saw nobody: {after:?}");
    ensure!(!grew(&format!("packet {DENIED_TOO}")), "a packet went to a denied address");
    let report = probe_report(&environment)?;
    for subject in ["permitted.test", &format!("{PERMITTED}:80"), &format!("{DENIED}:80"), DENIED_TOO] {
        let found: Vec<_> = report.observations.iter().filter(|seen| seen.subject.contains(subject)).collect();
        ensure!(!found.is_empty() && found.iter().all(|seen| seen.holds), "{subject}: {found:?}");
    }
    Ok(())
}

/// Takes the Domain down and gives what its last generation's probe found.
fn probe_report(environment: &Environment) -> Result<ProbeReport> {
    environment.lazaret(["down"]).run()?.ok()?;
    let store = DomainStore::open(&environment.domain_root()?.store(), &environment.domain()?)?;
    let document = store.document().context("no document")?;
    document.probe.clone().context("no probe report")
}

fn readiness_is_recorded() -> CaseResult {
    let environment = surroundings("[network]\nallow = [\"10.9.0.0/24\"]")?;
    let status = environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    drop(status);
    let status: serde_json::Value =
        serde_json::from_slice(&environment.lazaret(["status", "--json"]).run()?.ok()?.stdout)?;
    let rules = status["network"].to_string();
    for rule in ["deny 10.0.0.0/8 (default)", "permit 10.9.0.0/24 (configuration)", "deny 192.168.0.0/16 (default)"] {
        ensure!(rules.contains(rule), "status lacks '{rule}': {rules}");
    }
    environment.lazaret(["down"]).run()?.ok()?;

    let store = DomainStore::open(&environment.domain_root()?.store(), &environment.domain()?)?;
    let document = store.document().context("no document")?;
    let readiness = document.readiness.as_ref().context("no readiness")?;
    let probe = document.probe.as_ref().context("no probe report")?;
    ensure!(probe.failures().count() == 0 && probe.observations.len() > 10, "{probe:?}");
    let grant = lazaret::domain::network::NetworkGrant {
        allow: vec!["10.9.0.0/24".parse()?],
        deny: vec![],
        dns: vec![],
        ipv6: Ipv6::Off,
        probe: Default::default(),
    };
    let digest = derive::digest(&derive::network_policy(&grant));
    ensure!(readiness.policy == digest, "the policy that was read back is another");
    let identity = &document.identity;
    let fingerprint = derive::readiness_fingerprint(
        &identity.domain,
        identity.generation,
        &identity.configuration,
        &identity.sidecar,
        &digest,
        &readiness.namespace,
    );
    ensure!(readiness.fingerprint == fingerprint, "the fingerprint does not follow from what it binds");
    Ok(())
}

fn ping_works() -> CaseResult {
    let environment = surroundings("")?;
    let ping = |host: &str| environment.lazaret(["run", "--", "ping", "-c", "1", "-W", "1", host]).run();
    let before = root::contacts()?;
    ping(PERMITTED)?.ok()?.expect_stdout(" 0% packet loss")?;
    ping("permitted.test")?.ok()?.expect_stdout(" 0% packet loss")?;
    ping("10.0.2.2")?.ok()?.expect_stdout(" 0% packet loss")?;
    ping(DENIED)?.expect_code(1)?.expect_stdout("100% packet loss")?;
    let packets = |contacts: &BTreeMap<String, u64>, host: &str| contacts.get(&format!("packet {host}")).copied();
    let after = root::contacts()?;
    ensure!(packets(&after, PERMITTED) > packets(&before, PERMITTED), "no echo request came");
    ensure!(packets(&after, DENIED) == packets(&before, DENIED), "an echo request came to a denied host");
    Ok(())
}

/// What docs/limits.md says is not there fails at once, with an error and not with a wrong answer.
fn what_is_not_there_says_so() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile_of("root", "test", "linger = \"60s\"")?;
    let script = "import errno, socket, sys\n\
        for family, kind, protocol in [(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),\
                                       (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),\
                                       (socket.AF_PACKET, socket.SOCK_RAW, 768),\
                                       (socket.AF_PACKET, socket.SOCK_DGRAM, 768)]:\n  \
          try: socket.socket(family, kind, protocol); print('opened')\n  \
          except OSError as error: print(errno.errorcode[error.errno])\n";
    let output = python(&environment, script, &[])?;
    ensure!(output.stdout().lines().all(|line| line == "EPERM"), "{output}");
    ensure!(output.stdout().lines().count() == 4, "{output}");
    let ss = environment.lazaret(["run", "--", "ss", "--tcp", "--all"]).run()?;
    ensure!(ss.stderr().contains("Protocol not supported"), "{ss}");
    let bound = environment.lazaret(["run", "--", "ping", "-I", "tap0", "-c", "1", "-W", "1", PERMITTED]).run()?;
    ensure!(bound.code() != 0, "{bound}");
    Ok(())
}

/// Sessions share the sandbox's own loopback; it is not the host's, in neither direction.
fn services_inside_stay_inside() -> CaseResult {
    let environment = surroundings("")?;
    let script = "import socket, sys\n\
        s = socket.create_server(('0.0.0.0', 8123)); print('ready', flush=True)\n\
        while True:\n  c, _ = s.accept(); c.sendall(b'from inside'); c.close()\n";
    let mut server = environment.lazaret(["run", "--", "python3", "-u", "-c", script]).spawn()?;
    let ask = "import socket; print(socket.create_connection(('127.0.0.1', 8123), 2).recv(100).decode())";
    let asked = || environment.lazaret(["run", "--", "python3", "-c", ask]).run().ok()?.ok().ok();
    eventually("another session reaches the service", Duration::from_secs(10), asked)?.expect_stdout("from inside")?;
    for address in ["127.0.0.1:8123", "198.51.100.1:8123"] {
        let connected = std::net::TcpStream::connect(address);
        ensure!(connected.is_err(), "the host reaches a service of the sandbox at {address}");
    }
    let own = std::net::TcpListener::bind("127.0.0.1:8124")?;
    own.set_nonblocking(true)?;
    let output = python(&environment, REACH_HOST, &["8124"])?;
    ensure!(!output.stdout().contains("reached"), "{output}");
    ensure!(own.accept().is_err(), "the sandbox reaches a service of the host");
    ensure!(server.is_running()?, "the service ended");
    Ok(())
}

/// Every address by which the host's own loopback could be meant.
const REACH_HOST: &str = r#"
import socket, sys
for host in ['127.0.0.1', '127.0.0.53', '0.0.0.0', '10.0.2.2', '10.0.2.3', '10.0.2.100', '198.51.100.1']:
    try:
        socket.create_connection((host, int(sys.argv[1])), 0.3)
        print(host, 'reached')
    except OSError as error:
        print(host, error.strerror or 'silence')
"#;
