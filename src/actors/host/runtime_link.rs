//! The lifetime lease to the Runtime Supervisor.
//!
//! Role: owns the supervisor process and the coordinator's end of the lease. Parent: the coordinator.
//! Children: none; one task reads reports, and one waits for the process and reports its end to the
//! coordinator, also when this actor is gone. If this actor ends, the supervisor is killed, and everything
//! that it owns ends with it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;

use super::messages::{HostMessage, LinkMessage, SpawnError, SpawnRequest};
use crate::domain::failure::Failure;
use crate::domain::ownership::ProcessIdentity;
use crate::domain::runtime::DEFAULT_PATH;
use crate::sys::namespaces::{MappedChild, MappedCommand, spawn_mapped};
use crate::sys::process::KilledOnDrop;
use crate::sys::procfs;
use crate::sys::seqpacket::{self, Lease};
use crate::wire::frame;
use crate::wire::lease::{self, CoordinatorOrder, SupervisorReport};
use crate::{fault, observe, protocol_trace};

/// How long the supervisor may take to take everything down before it is killed.
const TEAR_DOWN_DEADLINE: Duration = lease::TEAR_DOWN_LIMIT.saturating_add(lease::GRACE);

/// How many orders wait for a supervisor that does not read.
const ORDERS: usize = 256;

/// State of the link.
pub struct LinkState {
    coordinator: ActorRef<HostMessage>,
    orders: Option<mpsc::Sender<(CoordinatorOrder, Vec<OwnedFd>)>>,
    supervisor: Option<KilledOnDrop>,
}

/// The link actor.
pub struct RuntimeLink;

impl Actor for RuntimeLink {
    type Msg = LinkMessage;
    type State = LinkState;
    type Arguments = ActorRef<HostMessage>;

    async fn pre_start(
        &self,
        _: ActorRef<LinkMessage>,
        coordinator: Self::Arguments,
    ) -> Result<LinkState, ActorProcessingErr> {
        Ok(LinkState { coordinator, orders: None, supervisor: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<LinkMessage>,
        message: LinkMessage,
        state: &mut LinkState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LinkMessage::Spawn(request, reply) => {
                let spawned = state.spawn(&myself, request);
                reply.send(spawned)?;
            }
            LinkMessage::Order(order, fds) => state.order(order, fds),
            LinkMessage::TearDown => {
                state.order(CoordinatorOrder::TearDown, Vec::new());
                myself.send_after(TEAR_DOWN_DEADLINE, || LinkMessage::TearDownOverdue);
            }
            LinkMessage::TearDownOverdue => {
                if state.supervisor.take().is_some() {
                    tracing::error!("the supervisor did not end in time and is killed");
                }
            }
            LinkMessage::Exited => {
                state.supervisor = None;
                state.orders = None;
            }
        }
        Ok(())
    }
}

impl LinkState {
    fn spawn(&mut self, myself: &ActorRef<LinkMessage>, request: SpawnRequest) -> Result<ProcessIdentity, SpawnError> {
        let (ours, theirs) = seqpacket::pair().map_err(SpawnError::Lease)?;
        let lease = Arc::new(Lease::new(ours).map_err(SpawnError::Lease)?);
        let logs = observe::directory(request.log.parent().unwrap_or(&request.log))
            .map_err(|source| SpawnError::Log { path: request.log.clone(), source })?;
        let title = format!("lazaret: supervisor {} {}", request.profile, request.domain);
        let mut env = vec![(OsString::from("PATH"), OsString::from(DEFAULT_PATH))];
        if let Some(filter) = std::env::var_os(observe::FILTER_VARIABLE) {
            env.push((observe::FILTER_VARIABLE.into(), filter));
        }
        env.extend([fault::handed_on(), protocol_trace::handed_on()].into_iter().flatten());
        let child = spawn_mapped(MappedCommand {
            executable: PathBuf::from("/proc/self/exe"),
            argv: vec![title.into(), lease::SUPERVISOR.into(), request.domain.to_string().into()],
            env,
            fds: vec![(theirs, lease::DESCRIPTOR), (logs, lease::LOGS_DESCRIPTOR)],
            mapping: request.mapping,
        })
        .map_err(SpawnError::Namespaces)?;
        let identity = procfs::identity(child.pid()).map_err(SpawnError::Identity)?;
        let identity = identity.ok_or_else(|| SpawnError::Identity(io::ErrorKind::NotFound.into()))?;
        let pidfd = child.pidfd().try_clone_to_owned().map_err(SpawnError::Identity)?;
        let (orders, queue) = mpsc::channel(ORDERS);
        tokio::spawn(send_orders(lease.clone(), queue, self.coordinator.clone()));
        let reading = tokio::spawn(read_reports(lease, self.coordinator.clone()));
        tokio::spawn(await_exit(child, reading, myself.clone(), self.coordinator.clone()));
        self.orders = Some(orders);
        self.supervisor = Some(KilledOnDrop::new(pidfd));
        Ok(identity)
    }

    fn order(&self, order: CoordinatorOrder, fds: Vec<OwnedFd>) {
        // A supervisor that is gone or stuck is noticed by its exit or by the order's own deadline.
        match &self.orders {
            Some(orders) if orders.try_send((order, fds)).is_ok() => {}
            _ => tracing::warn!("an order could not be given to the supervisor"),
        }
    }
}

async fn send_orders(
    lease: Arc<Lease>,
    mut queue: mpsc::Receiver<(CoordinatorOrder, Vec<OwnedFd>)>,
    coordinator: ActorRef<HostMessage>,
) {
    while let Some((order, fds)) = queue.recv().await {
        let bytes = match frame::encode(&order) {
            Ok(bytes) => bytes,
            Err(error) => {
                let failure = Failure::message(format!("an order to the supervisor can't be encoded: {error}"));
                coordinator.cast(HostMessage::Event(failure.into())).ok();
                continue;
            }
        };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if let Err(error) = lease.send(&bytes, &borrowed).await {
            tracing::warn!(%error, "the supervisor takes no more orders");
            return;
        }
    }
}

async fn read_reports(lease: Arc<Lease>, coordinator: ActorRef<HostMessage>) {
    loop {
        match lease.receive().await {
            Ok(Some((bytes, _))) => match frame::decode::<SupervisorReport>(&bytes) {
                Ok(report) => {
                    if coordinator.cast(HostMessage::Report(report)).is_err() {
                        return;
                    }
                }
                Err(error) => tracing::error!(%error, "a report can't be decoded"),
            },
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the lease failed");
                return;
            }
        }
    }
}

/// Reports the exit after every report that preceded it.
async fn await_exit(
    mut child: MappedChild,
    reading: tokio::task::JoinHandle<()>,
    link: ActorRef<LinkMessage>,
    coordinator: ActorRef<HostMessage>,
) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => format!("its status is unknown: {error}"),
    };
    tokio::time::timeout(Duration::from_secs(1), reading).await.ok();
    link.cast(LinkMessage::Exited).ok();
    coordinator.cast(HostMessage::SupervisorEnded(how)).ok();
}
