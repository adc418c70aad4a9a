//! Layer bytes: decompressed while both digests, of the stored and of the uncompressed bytes, are taken.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest, Sha256};

use super::blobs::BlobDigest;
use super::manifest::Compression;

/// Largest Zstandard window that is decoded, in bytes; RFC 8878 recommends 8 MiB, `zstd --ultra` uses 128.
const ZSTANDARD_WINDOW: u64 = 128 << 20;

/// Counts and digests what is read through it; the counts stay readable from outside.
#[derive(Debug)]
pub struct Meter<R> {
    inner: R,
    gauge: Gauge,
}

/// What a [`Meter`] has seen so far.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Rc<RefCell<(Sha256, u64)>>);

impl Gauge {
    /// Gives how many bytes were read.
    pub fn count(&self) -> u64 {
        self.0.borrow().1
    }

    /// Gives the digest of what was read.
    pub fn digest(&self) -> BlobDigest {
        BlobDigest::from_hasher(self.0.borrow().0.clone())
    }
}

impl<R> Meter<R> {
    /// Wraps a reader, and gives the gauge to look at.
    pub fn new(inner: R) -> (Self, Gauge) {
        let gauge = Gauge::default();
        (Self { inner, gauge: gauge.clone() }, gauge)
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let mut seen = self.gauge.0.borrow_mut();
        seen.0.update(&buffer[..count]);
        seen.1 += count as u64;
        Ok(count)
    }
}

/// Gives the uncompressed bytes of a layer.
pub fn decompress<'a, R: Read + 'a>(compressed: R, compression: Compression) -> Box<dyn Read + 'a> {
    let buffered = BufReader::with_capacity(128 << 10, compressed);
    match compression {
        Compression::None => Box::new(buffered),
        Compression::Gzip => Box::new(MultiGzDecoder::new(buffered)),
        Compression::Zstandard => Box::new(Zstandard::new(buffered)),
    }
}

/// Decoder of a whole Zstandard file: any number of frames, skippable ones between them, as
/// `zstd:chunked` layers have.
struct Zstandard<R> {
    input: R,
    decoder: FrameDecoder,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BetweenFrames,
    InFrame,
}

impl<R: BufRead> Zstandard<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTANDARD_WINDOW);
        Self { input, decoder, place: Place::BetweenFrames }
    }

    /// Moves into the next frame; false at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => {
                    self.place = Place::InFrame;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstandard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.place == Place::BetweenFrames && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded = self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(invalid)?;
            }
            match self.decoder.read(buffer)? {
                0 if !buffer.is_empty() => self.place = Place::BetweenFrames,
                count => return Ok(count),
            }
        }
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zstandard(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn all(compressed: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        decompress(compressed, compression).read_to_end(&mut bytes).map(|_| bytes)
    }

    #[test]
    fn frames_follow_each_other_and_skippable_ones_are_skipped() {
        let mut file = zstandard(&[b'a'; 300_000]);
        file.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        file.extend(zstandard(b"end"));
        let bytes = all(&file, Compression::Zstandard).unwrap();
        assert_eq!((bytes.len(), &bytes[300_000..]), (300_003, &b"end"[..]));
        assert!(all(&file[..file.len() - 2], Compression::Zstandard).is_err(), "a cut frame is an error");
        assert!(all(b"not zstd", Compression::Zstandard).is_err());
    }

    #[test]
    fn gzip_members_follow_each_other() {
        let member = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let file = [member(b"one"), member(b"two")].concat();
        assert_eq!(all(&file, Compression::Gzip).unwrap(), b"onetwo");
        assert!(all(&file[..file.len() - 1], Compression::Gzip).is_err());
    }

    #[test]
    fn a_meter_counts_and_digests() {
        let (mut meter, gauge) = Meter::new(&b"hello"[..]);
        io::copy(&mut meter, &mut io::sink()).unwrap();
        assert_eq!((gauge.count(), gauge.digest()), (5, BlobDigest::of(b"hello")));
    }
}
