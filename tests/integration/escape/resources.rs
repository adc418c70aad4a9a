//! What a profile's limits hold back, and what is held back without any.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;

use super::Prison;
use crate::harness::{Case, CaseResult, Need, case, wait_until};

pub fn cases() -> Vec<Case> {
    vec![
        case("escape_limits", &[Need::Sandbox], escape_limits),
        case("escape_many_descriptors", &[Need::Sandbox], escape_many_descriptors),
        case("escape_process_flood", &[Need::Sandbox], escape_process_flood),
    ]
}

/// Tries to go beyond each limit and says how far it got.
const HOG: &str = r#"
import resource


def forked():
    pids = []
    try:
        while len(pids) < 500:
            pid = os.fork()
            if not pid:
                signal.pause()
            pids.append(pid)
    except OSError as error:
        pids.append(errno.errorcode[error.errno])
    ended = pids.pop() if isinstance(pids[-1], str) else 'none'
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(pids), ended


def opened():
    files = []
    try:
        while len(files) < 1000:
            files.append(os.open('/workspace/README.md', os.O_RDONLY))
    except OSError as error:
        return len(files), errno.errorcode[error.errno]
    finally:
        for file in files:
            os.close(file)


def allocated():
    try:
        return len(bytearray(512 << 20))
    except MemoryError:
        return 'refused'


def filled(path, limit):
    size, block = 0, b'x' * (1 << 16)
    try:
        with open(path, 'wb', buffering=0) as file:
            while size < limit:
                size += file.write(block)
    except OSError as error:
        return size, errno.errorcode[error.errno]
    finally:
        os.unlink(path)
    return size, 'none'


signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
report('processes', forked())
report('files', opened())
report('memory', allocated())
report('file size', filled('/workspace/big', 16 << 20))
report('tmp', filled('/tmp/big', 8 << 20))
report('shared memory', filled('/dev/shm/big', 8 << 20))
for name in ['NOFILE', 'NPROC', 'AS', 'FSIZE']:
    limit = getattr(resource, 'RLIMIT_' + name)
    attempt('raise ' + name, lambda: call('setrlimit', limit, struct.pack('QQ', 1 << 40, 1 << 40)))
"#;

fn escape_limits() -> CaseResult {
    let limits =
        "[limits]\nopen_files = 100\nprocesses = 40\nmemory = \"256MiB\"\nfile_size = \"4MiB\"\ntmp = \"2MiB\"";
    let prison = Prison::new("dev", limits)?;
    let outcomes = prison.attack(HOG, &[])?;
    let pair =
        |name: &str| -> anyhow::Result<(u64, String)> { Ok(serde_json::from_value(outcomes.fact(name)?.clone())?) };
    for (name, most, error) in [
        ("processes", 40, "EAGAIN"),
        ("files", 100, "EMFILE"),
        ("file size", 4 << 20, "EFBIG"),
        ("tmp", 2 << 20, "ENOSPC"),
        ("shared memory", 2 << 20, "ENOSPC"),
    ] {
        let (reached, ended) = pair(name)?;
        ensure!(reached > 0 && reached <= most && ended == error, "{name}: {reached}, {ended}");
    }
    ensure!(outcomes.fact("memory")? == "refused", "memory: {}", outcomes.fact("memory")?);
    outcomes.expect_refused(|name| name.starts_with("raise "))?;
    Ok(())
}

fn escape_many_descriptors() -> CaseResult {
    let prison = Prison::new("dev", "")?;
    let script = "import os, resource, sys\n\
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n\
        n = 0\n\
        try:\n  \
          while n < 10000: os.open('/workspace/README.md', os.O_RDONLY); n += 1\n\
        except OSError as error: print(error)\n\
        print(n, flush=True)\n\
        sys.stdin.read()\n";
    let mut hog = prison.environment.lazaret(["run", "--", "python3", "-c", script]).spawn()?;
    for _ in 0..3 {
        let beside = prison.environment.in_sandbox("cat /workspace/README.md && ls / > /dev/null").run()?.ok()?;
        ensure!(beside.stdout() == "# sample\n", "{beside}");
    }
    hog.close_input();
    let output = hog.wait(Duration::from_secs(30))?.ok()?;
    ensure!(output.stdout() == "10000\n", "{output}");
    Ok(())
}

/// A fork bomb is held at the limit, leaves other sessions alone, and ends with its session.
fn escape_process_flood() -> CaseResult {
    let prison = Prison::new("dev", "[limits]\nprocesses = 100")?;
    // Whatever it becomes shares one lock, which is free when the last of it is dead (flock(2)).
    let bomb = "import fcntl, os, time\n\
        lock = open('/workspace/lock', 'w')\n\
        fcntl.flock(lock, fcntl.LOCK_EX)\n\
        while True:\n  \
          try: os.fork()\n  \
          except OSError: time.sleep(0.2)\n  \
          open('/workspace/bombs', 'a').write('%d ' % os.getpid())\n";
    let mut flood = prison.environment.lazaret(["run", "--", "python3", "-c", bomb]).spawn()?;
    let bombs = prison.environment.project().join("bombs");
    let seen = || fs_err::read_to_string(&bombs).unwrap_or_default();
    wait_until("the bomb goes off", Duration::from_secs(20), || {
        seen().split_whitespace().collect::<BTreeSet<_>>().len() > 80
    })?;
    ensure!(prison.shell("echo beside it")? == "beside it\n");
    let processes = seen().split_whitespace().collect::<BTreeSet<_>>().len();
    ensure!(processes <= 101, "{processes} processes");
    flood.kill();
    // Before that there is not even room for another process.
    let works = || prison.shell("flock --timeout 5 /workspace/lock echo works").is_ok_and(|said| said == "works\n");
    wait_until("the bomb is dead", Duration::from_secs(20), works)?;
    Ok(())
}
