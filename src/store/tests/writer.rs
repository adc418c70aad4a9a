use ractor::{Actor, ActorRef};

use super::Home;
use crate::core::generation::fixtures::*;
use crate::core::generation::{Change, Decision};
use crate::store::writer::{StoreWriter, StoreWriterMessage, WriteError, apply};

async fn spawn(home: &Home) -> (ActorRef<StoreWriterMessage>, tokio::task::JoinHandle<()>) {
    Actor::spawn(None, StoreWriter, home.open()).await.unwrap()
}

async fn close(writer: &ActorRef<StoreWriterMessage>, handle: tokio::task::JoinHandle<()>) {
    writer.call(StoreWriterMessage::Close, None).await.unwrap().unwrap();
    handle.await.unwrap();
}

#[tokio::test]
async fn each_request_gets_its_own_answer_in_order() {
    let home = Home::new();
    let (writer, handle) = spawn(&home).await;
    let transactions = life(1);
    let replies = transactions.iter().map(|changes| apply(&writer, changes.clone()));
    let (replies, refused) =
        tokio::join!(futures_util::future::join_all(replies), apply(&writer, vec![Change::Finish]));
    let mut expected = None;
    for (reply, changes) in replies.into_iter().zip(&transactions) {
        expected = Some(accept(expected, changes));
        assert_eq!(reply.unwrap().as_ref(), expected.as_ref().unwrap());
    }
    assert!(matches!(refused, Err(WriteError::Refused(_))));
    let document = writer.call(StoreWriterMessage::Document, None).await.unwrap().unwrap();
    assert_eq!(document.as_deref(), expected.as_ref());
    close(&writer, handle).await;
    assert_eq!(home.open().document(), expected.as_ref(), "the store is closed and can be opened again");
}

#[tokio::test]
async fn closing_finishes_what_was_asked_before_and_refuses_what_comes_after() {
    let home = Home::new();
    let (writer, handle) = spawn(&home).await;
    let before = apply(&writer, beginning(1));
    let closed = writer.call(StoreWriterMessage::Close, None);
    let after = async { apply(&writer, vec![Change::BeginRecovery(process(11))]).await };
    let (before, closed, after) = tokio::join!(before, closed, after);
    assert_eq!(before.unwrap().decision, Decision::Starting);
    assert!(closed.unwrap().is_success());
    assert!(matches!(after, Err(WriteError::Gone)));
    handle.await.unwrap();
    assert_eq!(home.open().document().unwrap().decision, Decision::Starting);
}

#[tokio::test]
async fn a_stopped_writer_lets_go_of_the_store() {
    let home = Home::new();
    let (writer, handle) = spawn(&home).await;
    apply(&writer, beginning(1)).await.unwrap();
    writer.stop(None);
    handle.await.unwrap();
    assert!(matches!(apply(&writer, vec![Change::Finish]).await, Err(WriteError::Gone)));
    home.open();
}
