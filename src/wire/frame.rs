//! Frames: a four-byte big-endian length, then a MessagePack message of that many bytes.
//!
//! A length above the limit is refused before anything is allocated, since everything that is read
//! here may come from a hostile or broken peer.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::bytes::{Buf, BufMut, BytesMut};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

/// Largest frame on a client connection, in bytes. Output travels in chunks well below it.
pub const CLIENT_FRAME_LIMIT: usize = 1 << 20;

/// Largest packet on the lifetime lease, in bytes; below the default socket buffer.
pub const LEASE_PACKET_LIMIT: usize = 160 << 10;

/// A frame that can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is larger than the limit, or the connection failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// The bytes are not the expected message.
    #[error("a message could not be decoded")]
    Decode(#[source] rmp_serde::decode::Error),
    /// The message can't be encoded.
    #[error("a message could not be encoded")]
    Encode(#[source] rmp_serde::encode::Error),
    /// The message is larger than a packet may be.
    #[error("a message of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Encodes one message without a length.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    rmp_serde::to_vec(message).map_err(FrameError::Encode)
}

/// Decodes one message without a length.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    rmp_serde::from_slice(bytes).map_err(FrameError::Decode)
}

/// Codec of a connection that sends `S` and receives `R`.
#[derive(Debug)]
pub struct MessageCodec<S, R> {
    frames: LengthDelimitedCodec,
    messages: PhantomData<fn(S) -> R>,
}

impl<S, R> MessageCodec<S, R> {
    /// Makes a codec that refuses frames above `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let frames = LengthDelimitedCodec::builder().max_frame_length(limit).new_codec();
        Self { frames, messages: PhantomData }
    }
}

impl<S: Serialize, R> Encoder<S> for MessageCodec<S, R> {
    type Error = FrameError;

    fn encode(&mut self, message: S, buffer: &mut BytesMut) -> Result<(), FrameError> {
        // The message is written behind a gap for its length, so that bulk output is copied once.
        let start = buffer.len();
        buffer.put_u32(0);
        let mut writer = buffer.writer();
        rmp_serde::encode::write(&mut writer, &message).map_err(FrameError::Encode)?;
        let size = buffer.len() - start - 4;
        let limit = self.frames.max_frame_length();
        if size > limit {
            buffer.truncate(start);
            return Err(FrameError::TooLarge { size, limit });
        }
        let length = u32::try_from(size).expect("the limit is below 4 GiB").to_be_bytes();
        buffer[start..start + 4].copy_from_slice(&length);
        Ok(())
    }
}

impl<S, R: DeserializeOwned> Decoder for MessageCodec<S, R> {
    type Item = R;
    type Error = FrameError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<R>, FrameError> {
        match self.frames.decode(buffer)? {
            Some(frame) => decode(frame.chunk()).map(Some),
            None => Ok(None),
        }
    }
}

/// Serialises byte vectors as MessagePack binary, not as arrays of numbers.
pub mod bytes {
    use serde::de::{Deserializer, Visitor};
    use serde::ser::Serializer;

    /// Writes the bytes in one piece.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// Reads the bytes in one piece.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::client::{ClientMessage, CoordinatorMessage, Stream};

    #[test]
    fn a_message_survives_and_a_partial_one_waits() {
        let mut codec = MessageCodec::<CoordinatorMessage, CoordinatorMessage>::new(CLIENT_FRAME_LIMIT);
        let message = CoordinatorMessage::Output(Stream::Output, vec![0, 255, 10]);
        let mut buffer = BytesMut::new();
        codec.encode(message.clone(), &mut buffer).unwrap();
        let mut partial = buffer.split_to(5);
        assert_eq!(codec.decode(&mut partial).unwrap(), None);
        partial.unsplit(buffer);
        assert_eq!(codec.decode(&mut partial).unwrap(), Some(message));
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_the_bytes_arrive() {
        let mut codec = MessageCodec::<ClientMessage, ClientMessage>::new(1000);
        let mut buffer = BytesMut::from(&[0x7f, 0xff, 0xff, 0xff][..]);
        assert!(codec.decode(&mut buffer).is_err());
        let mut out = BytesMut::new();
        let refused = codec.encode(ClientMessage::Input(vec![0; 1001]), &mut out);
        assert!(matches!(refused, Err(FrameError::TooLarge { .. })));
        assert!(out.is_empty(), "nothing half-made stays in the buffer");
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        let mut codec = MessageCodec::<ClientMessage, ClientMessage>::new(1000);
        let mut buffer = BytesMut::from(&[0, 0, 0, 2, 0xc1, 0xc1][..]);
        assert!(matches!(codec.decode(&mut buffer), Err(FrameError::Decode(_))));
    }
}
