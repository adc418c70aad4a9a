//! Plays the Host Coordinator for a Runtime Supervisor, for development: builds a generation, runs
//! sessions in it and takes it down, and prints how long each took.
//!
//! `supervise DIRECTORY ROOT.tar WORKSPACE [RUNS]` as a user with subordinate ids; the root file system is unpacked
//! into DIRECTORY once.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lazaret::actors::runtime::{LEASE_FD, LOG_FD};
use lazaret::domain::artifact::{GuestUser, IdMapping};
use lazaret::domain::ids::*;
use lazaret::domain::network::{NetworkGrant, ProbeGrant};
use lazaret::domain::profile::{Access, GuestPath, Limits};
use lazaret::domain::runtime::*;
use lazaret::domain::session::{ControlEvent, WindowSize};
use lazaret::domain::workspace::{Protection, ProtectionKind};
use lazaret::policy::derive;
use lazaret::policy::mapping::identity_mapping;
use lazaret::policy::sandbox::{SandboxInput, specification};
use lazaret::sys::accounts::{Account, SubordinateIds};
use lazaret::sys::namespaces::{MappedCommand, run_mapped, spawn_mapped};
use lazaret::sys::{executables, pty, seqpacket};
use lazaret::wire::frame;
use lazaret::wire::lease::{CoordinatorOrder, ExecOutcome, SupervisorReport};

const USER: u32 = 1000;

fn path(text: &str) -> GuestPath {
    GuestPath::try_from(text.to_owned()).unwrap()
}

fn plan(base: &Path, workspace: &Path, mapping: &IdMapping, generation: u64) -> RuntimePlan {
    let ipv6 = std::env::var_os("IPV6").is_some();
    let grant = NetworkGrant { allow: vec![], deny: vec![], dns: vec![], ipv6, probe: ProbeGrant::default() };
    let policy = derive::network_policy(&grant);
    let probe = derive::probe_plan(&policy, &grant.probe);
    let profile: ProfileName = "dev".parse().unwrap();
    let run = base.join(format!("g{generation}"));
    let scratch = base.join(format!("scratch-{generation}"));
    for directory in ["mnt", "requests", "results", "r"] {
        std::fs::create_dir_all(run.join(directory)).unwrap();
    }
    let anchors: Vec<_> = [("/home/agent/.cache", 0), ("/var/lib", 1)]
        .map(|(guest, n)| AnchorPlan {
            path: path(guest),
            overlay: OverlayPlan {
                upper: base.join(format!("state/{n}/upper")),
                work: base.join(format!("state/{n}/work")),
                merged: run.join(format!("mnt/a{n}")),
            },
        })
        .into();
    let root = OverlayPlan { upper: scratch.join("root"), work: scratch.join("work"), merged: run.join("mnt/root") };
    let volumes = vec![VolumePlan {
        source: workspace.join("../volume").canonicalize().unwrap(),
        guest: path("/srv/volume"),
        access: Access::ReadOnly,
        staged: run.join("mnt/v0"),
    }];
    let protect = |path: &str, kind| Protection { path: path.into(), kind };
    let workspace = WorkspacePlan {
        source: workspace.to_owned(),
        staged: run.join("mnt/ws"),
        protections: vec![
            protect(".git", ProtectionKind::Pinned),
            protect(".git/config", ProtectionKind::ReadOnly),
            protect(".git/hooks", ProtectionKind::Hidden),
        ],
        hidden: scratch.join("hidden"),
    };
    let control: Vec<_> = [
        (base.join("bin"), "bin", Access::ReadOnly),
        (run.join("requests"), "mailbox/requests", Access::ReadWrite),
        (run.join("results"), "mailbox/results", Access::ReadOnly),
    ]
    .into_iter()
    .map(|(source, name, access)| VolumePlan {
        source,
        guest: path(&format!("/run/lazaret/{name}")),
        access,
        staged: run.join("mnt").join(name),
    })
    .collect();
    let limits = Limits { tmp: 64 << 20, ..Limits::default() };
    let mut oci_spec = specification(&SandboxInput {
        root: &root.merged,
        hostname: "dev",
        workspace: &workspace.staged,
        anchors: &anchors,
        volumes: &volumes,
        control: &control,
        limits: &limits,
        mapping,
        probe: &probe,
    })
    .unwrap();
    if std::env::var_os("NOUSER").is_some() {
        oci_spec["linux"]["namespaces"].as_array_mut().unwrap().retain(|n| n["type"] != "user");
        oci_spec["linux"].as_object_mut().unwrap().retain(|k, _| !k.ends_with("Mappings"));
    }
    let file = |name: &str, content: &str| RootFile { path: path(name), content: content.into() };
    RuntimePlan {
        domain: DomainId::derive(&profile, &workspace.source),
        profile,
        generation: Generation(generation),
        configuration: ConfigFingerprint::of(b"x"),
        coordinator: CoordinatorId::mint(),
        sidecar: SidecarId::mint(),
        sandbox: SandboxId::mint(),
        uid: USER,
        gid: USER,
        artifact: ArtifactId::of(b"x"),
        lower: base.join("rootfs"),
        root,
        anchors,
        workspace,
        volumes,
        control,
        root_files: vec![
            file("/etc/resolv.conf", "nameserver 10.0.2.3\n"),
            file("/etc/hosts", "127.0.0.1 localhost\n"),
            file("/etc/hostname", "dev\n"),
        ],
        runsc_directory: run.join("r"),
        scratch,
        runsc: executables::find("runsc").unwrap(),
        slirp4netns: executables::find("slirp4netns").unwrap(),
        policy,
        probe,
        oci_spec,
    }
}

struct Peer {
    lease: seqpacket::Lease,
    began: Instant,
}

impl Peer {
    async fn send(&self, order: &CoordinatorOrder, fds: &[std::os::fd::BorrowedFd<'_>]) {
        self.lease.send(&frame::encode(order).unwrap(), fds).await.unwrap();
    }

    async fn next(&self) -> Option<SupervisorReport> {
        let received = tokio::time::timeout(Duration::from_secs(30), self.lease.receive()).await.expect("a report");
        let report: SupervisorReport = frame::decode(&received.unwrap()?.0).unwrap();
        let mut text = format!("{report:?}");
        text.truncate(if std::env::var_os("FULL").is_some() { 100_000 } else { 150 });
        println!("{:8.1} ms  {text}", self.began.elapsed().as_secs_f64() * 1e3);
        Some(report)
    }

    async fn start(&self, argv: &[&str], interactive: bool, fds: &[std::os::fd::BorrowedFd<'_>]) -> SessionId {
        let session = SessionId::mint();
        let process = GuestProcess {
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            env: [("PATH", "/usr/bin:/bin"), ("TERM", "xterm")].map(|(n, v)| (n.into(), v.into())).to_vec(),
            directory: b"/workspace".to_vec(),
            uid: USER,
            gid: USER,
            groups: vec![],
            interactive,
        };
        self.send(&CoordinatorOrder::StartSession { session: session.clone(), process }, fds).await;
        session
    }

    async fn ended(&self, wanted: &SessionId) -> ExecOutcome {
        loop {
            if let SupervisorReport::SessionEnded { session, outcome } = self.next().await.expect("lease open")
                && session == *wanted
            {
                return outcome;
            }
        }
    }

    async fn started(&self, wanted: &SessionId) {
        loop {
            match self.next().await.expect("lease open") {
                SupervisorReport::SessionStarted { session, .. } if session == *wanted => return,
                SupervisorReport::SessionEnded { session, outcome } if session == *wanted => panic!("{outcome:?}"),
                _ => {}
            }
        }
    }

    /// Runs a command with pipes; gives its output and how it ended.
    async fn run(&self, argv: &[&str]) -> (String, ExecOutcome) {
        let began = Instant::now();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let fds = [null.as_fd(), writer.as_fd(), writer.as_fd()];
        let session = self.start(argv, false, &fds).await;
        drop(writer);
        let output = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            std::fs::File::from(reader).read_to_string(&mut text).unwrap();
            text
        });
        let outcome = self.ended(&session).await;
        println!("          exec took {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
        (output.await.unwrap(), outcome)
    }
}

/// Collects what a terminal shows until it holds `wanted`.
async fn expect(master: &OwnedFd, wanted: &'static str) -> String {
    let mut file = std::fs::File::from(master.try_clone().unwrap());
    let read = tokio::task::spawn_blocking(move || {
        let mut seen = String::new();
        let mut buffer = [0u8; 4096];
        while !seen.contains(wanted) {
            match file.read(&mut buffer) {
                Ok(n @ 1..) => seen.push_str(&String::from_utf8_lossy(&buffer[..n])),
                _ => break,
            }
        }
        seen
    });
    tokio::time::timeout(Duration::from_secs(10), read).await.unwrap_or_else(|_| panic!("no {wanted:?}")).unwrap()
}

fn leftovers(base: &Path) -> Vec<String> {
    let mut found = vec![];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(base.to_str().unwrap()) && !line.contains("supervise ") {
            found.push(line);
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().filter(|l| l.contains(base.to_str().unwrap())).map(str::to_owned));
    found
}

async fn once(base: &Path, workspace: &Path, mapping: &IdMapping, generation: u64) -> (f64, f64) {
    let mut plan = plan(base, workspace, mapping, generation);
    match std::env::var("BREAK").unwrap_or_default().as_str() {
        "runsc" => plan.runsc = "/bin/false".into(),
        "no-runsc" => plan.runsc = "/no/runsc".into(),
        "slirp" => plan.slirp4netns = "/bin/false".into(),
        "no-slirp" => plan.slirp4netns = "/no/slirp".into(),
        "lower" => plan.lower = "/no/lower".into(),
        "anchor" => plan.anchors[0].path = path("/etc/passwd"),
        "protect" => plan.workspace.protections[0].path = ".svn".into(),
        "spec" => plan.oci_spec["root"]["path"] = "/no/root".into(),
        "init" => plan.oci_spec["process"]["args"] = serde_json::json!(["/bin/echo", "nonsense"]),
        "hang" => plan.oci_spec["process"]["args"] = serde_json::json!(["/bin/sleep", "1000"]),
        _ => {}
    }
    let (ours, theirs) = seqpacket::pair().unwrap();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(base.join("supervisor.log")).unwrap();
    let began = Instant::now();
    let lazaret = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("lazaret");
    let mut child = spawn_mapped(MappedCommand {
        executable: lazaret,
        argv: vec!["lazaret: supervisor dev".into(), "__supervisor".into()],
        env: vec![("LAZARET_LOG".into(), "lazaret=debug".into())],
        fds: vec![(theirs, LEASE_FD), (log.into(), LOG_FD)],
        mapping: mapping.clone(),
    })
    .unwrap();
    println!("{:8.1} ms  spawned", began.elapsed().as_secs_f64() * 1e3);
    let peer = Peer { lease: seqpacket::Lease::new(ours).unwrap(), began };
    let (scratch, run) = (plan.scratch.clone(), plan.runsc_directory.clone());
    peer.send(&CoordinatorOrder::Build(Box::new(plan)), &[]).await;
    loop {
        match peer.next().await.expect("lease open") {
            SupervisorReport::Probed(report) => {
                if std::env::var_os("FULL").is_some() {
                    for o in &report.observations {
                        println!("    {} {}: {}", o.holds, o.subject, o.seen);
                    }
                }
                break;
            }
            SupervisorReport::BuildFailed { causes, hints } => {
                println!("{causes:#?} {hints:#?}");
                while !matches!(peer.next().await, None | Some(SupervisorReport::TornDown)) {}
                println!("{:?}, scratch {}", child.wait().await, scratch.exists());
                assert_eq!(leftovers(base), Vec::<String>::new());
                return (0.0, 0.0);
            }
            _ => {}
        }
    }
    let ready = began.elapsed().as_secs_f64() * 1e3;
    if std::env::var_os("QUICK").is_none() {
        sessions(&peer).await;
    }
    if let Some(script) = std::env::var_os("SCRIPT") {
        let (output, outcome) = peer.run(&["sh", "-c", script.to_str().unwrap()]).await;
        println!("{output}{outcome:?}");
    }
    if let Some(victim) = std::env::var_os("KILL") {
        let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let session = peer.start(&["sleep", "1000"], false, &[null.as_fd(), null.as_fd(), null.as_fd()]).await;
        peer.started(&session).await;
        let pids: Vec<_> = lazaret::sys::procfs::descendants(child.pid()).collect();
        for pid in pids {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if std::env::var_os("FULL").is_some() {
                println!("{pid} {}", &line[..line.len().min(200)]);
            }
            if line.contains(victim.to_str().unwrap()) {
                println!("killing {pid} {}", &line[..line.len().min(80)]);
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
                break;
            }
        }
        if victim != "slirp4netns" {
            peer.ended(&session).await;
        }
    }
    if std::env::var_os("HOLD").is_some() {
        println!("supervisor {}", child.pid());
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }

    let began = Instant::now();
    peer.send(&CoordinatorOrder::TearDown, &[]).await;
    while !matches!(peer.next().await, Some(SupervisorReport::TornDown)) {}
    let status = child.wait().await.unwrap();
    let torn = began.elapsed().as_secs_f64() * 1e3;
    println!("ready {ready:.1} ms, torn down {torn:.1} ms, {status:?}");
    assert!(status.success());
    assert!(!scratch.exists(), "scratch");
    assert!(!run.exists(), "runsc directory");
    assert_eq!(leftovers(base), Vec::<String>::new());
    (ready, torn)
}

async fn sessions(peer: &Peer) {
    let (output, outcome) = peer.run(&["sh", "-c", "id -u; pwd; ls /; echo err >&2; exit 3"]).await;
    println!("{output}");
    assert_eq!(outcome, ExecOutcome::Exited(3));
    let (output, outcome) = peer.run(&["/no/such/program"]).await;
    println!("{output}{outcome:?}");
    assert_eq!(outcome, ExecOutcome::Exited(127));
    let (output, _) = peer
        .run(&[
            "sh",
            "-c",
            "echo x >> .git/config; echo y > .git/hooks/pre-commit && echo hooks writable; ls -la .git/hooks; mv .git .git2; mv .git/hooks .git/h2; mv .git/config .git/c2; rm -rf .git/config; git commit -qm two --allow-empty && git log --oneline; \
             touch made && rm made && echo workspace writable; touch /home/agent/.cache/a && echo anchor writable; ls -ld /home/agent /home/agent/.cache /srv/volume; \
             cat /etc/resolv.conf; touch /srv/volume/x; mount | head -20; cat /proc/self/status | grep Cap; ls -ld / /workspace /run/lazaret /run/lazaret/*",
        ])
        .await;
    println!("{output}");
    for wanted in ["hooks writable", "workspace writable", "anchor writable"] {
        assert!(output.contains(wanted), "{wanted}");
    }

    // A terminal.
    let began = Instant::now();
    let terminal = pty::open(WindowSize { rows: 33, columns: 101 }).unwrap();
    let session = peer.start(&["bash", "--norc", "-i"], true, &[terminal.slave.as_fd()]).await;
    drop(terminal.slave);
    peer.started(&session).await;
    expect(&terminal.master, "$ ").await;
    println!("          prompt after {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let mut keys = std::fs::File::from(terminal.master.try_clone().unwrap());
    keys.write_all(b"stty size; tty; sleep 100\n").unwrap();
    println!("{:?}", expect(&terminal.master, "33 101").await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    peer.send(&CoordinatorOrder::SignalSession { session: session.clone(), event: ControlEvent::Interrupt }, &[]).await;
    println!("{:?}", expect(&terminal.master, "$ ").await);
    keys.write_all(b"sleep 1000 & (setsid sleep 1000 &) ; echo don''e\n").unwrap();
    expect(&terminal.master, "done").await;
    let (output, _) = peer.run(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]).await;
    println!("other session sees: {output}");
    let began = Instant::now();
    peer.send(&CoordinatorOrder::KillSession { session: session.clone() }, &[]).await;
    let outcome = peer.ended(&session).await;
    println!("          kill took {:.1} ms: {outcome:?}", began.elapsed().as_secs_f64() * 1e3);

    // Kill and signal without a terminal.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let fds = [null.as_fd(), writer.as_fd(), writer.as_fd()];
    let one = peer
        .start(&["sh", "-c", "trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done"], false, &fds)
        .await;
    let two = peer.start(&["sleep", "1000"], false, &fds).await;
    peer.started(&two).await;
    expect(&reader, "ready").await;
    peer.send(&CoordinatorOrder::SignalSession { session: one.clone(), event: ControlEvent::Terminate }, &[]).await;
    assert_eq!(peer.ended(&one).await, ExecOutcome::Exited(9));
    peer.send(&CoordinatorOrder::KillSession { session: two.clone() }, &[]).await;
    println!("{:?}", peer.ended(&two).await);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let base = PathBuf::from(&arguments[0]);
    let account = Account::current().unwrap();
    let ids = SubordinateIds::of(&account).unwrap();
    let user = GuestUser {
        uid: USER,
        gid: USER,
        groups: vec![],
        name: None,
        home: "/home/agent".into(),
        shell: "/bin/sh".into(),
    };
    let mapping = identity_mapping(&user, (account.uid, account.gid), &ids.uids, &ids.gids).unwrap();
    std::fs::create_dir_all(base.join("bin")).unwrap();
    let guest = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("lazaret-guest");
    std::fs::copy(guest, base.join("bin/lazaret-guest")).unwrap();
    let rootfs = base.join("rootfs");
    if !rootfs.exists() {
        std::fs::create_dir(&rootfs).unwrap();
        let command = MappedCommand {
            executable: "/usr/bin/tar".into(),
            argv: vec!["tar".into(), "-x".into(), "-C".into(), rootfs.into(), "-f".into(), arguments[1].clone().into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            fds: vec![],
            mapping: mapping.clone(),
        };
        let output = run_mapped(command).await.unwrap();
        println!("unpacked: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let workspace = PathBuf::from(&arguments[2]).canonicalize().unwrap();
    let runs = arguments.get(3).map_or(1, |text| text.parse().unwrap());
    let mut times = vec![];
    let first = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    for generation in 0..runs {
        times.push(once(&base, &workspace, &mapping, first + generation).await);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("median ready {:.1} ms", median(times.iter().map(|t| t.0).collect()));
    println!("median torn down {:.1} ms", median(times.iter().map(|t| t.1).collect()));
}
