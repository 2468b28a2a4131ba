//! Whether a write bypasses the page cache, and its wait for requests that map rows: see
//! [`marks`](crate::file::marks).

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::task::Share;
use crate::error::{Error, Kind, Result};
use crate::file::File;
use crate::file::marks::Mark;

/// The longest wait for requests that map rows.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

#[derive(Default)]
pub(super) struct Bypass {
    /// The mark, and when it was set.
    mark: OnceLock<(Option<Mark>, Instant)>,
    /// Whether the page cache is bypassed, determined once for all workers.
    outcome: OnceLock<Result<bool>>,
}

impl Bypass {
    /// Marks the file, and waits until no other request maps rows or the share is over. Returns whether the
    /// page cache may be bypassed. If it may not, the bytes go through it, which needs no wait.
    ///
    /// # Errors
    /// The page cache may not be bypassed, and the request `must` do so.
    pub(super) fn wait(&self, file: &File, share: &Share<'_>, must: bool) -> Result<bool> {
        const PAUSE: Duration = Duration::from_millis(1);
        let mark = || (file.mark_bypass(), Instant::now());
        let since = self.mark.get_or_init(mark).1;
        loop {
            if let Some(known) = self.outcome.get() {
                return known.clone();
            }
            let outcome = if !file.has_rows() {
                Ok(true)
            } else if since.elapsed() >= PATIENCE {
                given_up(share, must)
            } else if share.is_over() {
                return Ok(false);
            } else {
                sleep(PAUSE);
                continue;
            };
            let _ = self.outcome.set(outcome);
        }
    }

    /// Whether the write goes through the page cache, because the wait was too long.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.outcome.get(), Some(Ok(false)))
    }
}

fn given_up(share: &Share<'_>, must: bool) -> Result<bool> {
    let seconds = PATIENCE.as_secs();
    let cause = format!("another write has mapped rows of the file for {seconds} s");
    if must {
        let cause = format!("{cause}, and a direct write must not begin before it ends");
        let remedy = "continue or end the process that makes it, which may be stopped (fuser(1) lists those \
                      that have the file open), or remove direct=yes";
        return Err(Error::new(Kind::Unavailable, cause).remedy(remedy));
    }
    let note = format!("{cause}; written through the page cache");
    share.counters().note(&note);
    Ok(false)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::file::Access;
    use crate::file::position::Operation;
    use crate::options::Options;
    use crate::plan::Extent;
    use crate::report::Path;
    use crate::request::{Order, Request, Waited, submit};

    /// Memory, and a request that writes it from the start of a file while another opening has mapped rows.
    struct BesideRows {
        request: Request,
        rows: Option<Mark>,
        memory: Vec<u8>,
        /// The file, and the opening that has mapped rows.
        files: [Arc<File>; 2],
        _folder: tempfile::TempDir,
    }

    impl BesideRows {
        /// `None` if the file system of the tests has no direct I/O.
        fn begin(options: &str, bytes: usize) -> Option<BesideRows> {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let access = Access {
                create: true,
                ..Access::READ_WRITE
            };
            let open = || Arc::new(File::open(&path, access, Options::default()).unwrap());
            let files = [open(), open()];
            if files[0].direct_fd().is_none() {
                eprintln!("SKIPPED: the file system of the tests has no direct I/O");
                return None;
            }
            let rows = Some(files[1].mark_rows().unwrap());
            let memory = vec![7; bytes];
            let extents = [Extent {
                offset: 0,
                length: bytes as u64,
                memory: memory.as_ptr().addr(),
            }];
            let order = Order {
                waiter_shares: true,
                ..Order::new(Operation::Write, &extents, Options::parse(options).unwrap())
            };
            // SAFETY: the memory is kept with the request, which each test finishes.
            let request = unsafe { submit(&files[0], order, None, None).unwrap() };
            Some(BesideRows {
                request,
                rows,
                memory,
                files,
                _folder: folder,
            })
        }

        fn written(&self) -> Vec<u8> {
            std::fs::read(self.files[0].path()).unwrap()
        }
    }

    const SMALL: usize = 64 << 10;

    #[test]
    fn a_direct_write_waits_for_mapped_rows_and_its_waits_keep_their_limits() {
        let Some(mut write) = BesideRows::begin("direct=yes", SMALL) else {
            return;
        };
        for _ in 0..3 {
            let begun = Instant::now();
            let news = write.request.wait(Some(Duration::from_millis(20)));
            assert!(matches!(news, Waited::Pending));
            assert!(begun.elapsed() < PATIENCE / 2);
        }
        assert!(write.written().is_empty());
        write.rows = None;
        write.request.finish().unwrap();
        assert_eq!(write.written(), write.memory);
        let report = write.request.report().unwrap();
        assert_eq!(report.bytes_by(Path::HostDirect), SMALL as u64);
    }

    #[test]
    fn a_direct_write_that_waits_for_mapped_rows_can_be_cancelled() {
        let Some(write) = BesideRows::begin("direct=yes", SMALL) else {
            return;
        };
        let begun = Instant::now();
        write.request.cancel();
        assert_eq!(write.request.finish().unwrap_err().kind(), Kind::Cancelled);
        assert!(begun.elapsed() < PATIENCE / 2);
        assert!(write.written().is_empty());
    }

    #[test]
    fn a_direct_write_fails_if_rows_stay_mapped() {
        let Some(write) = BesideRows::begin("direct=yes", SMALL) else {
            return;
        };
        let error = write.request.finish().unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        let text = error.to_string();
        let path = write.files[0].path().display().to_string();
        for part in [
            &path,
            "mapped rows of the file for 1 s",
            "remove direct=yes",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(write.written().is_empty());
    }

    #[test]
    fn a_write_that_need_not_be_direct_goes_through_the_page_cache_if_rows_stay_mapped() {
        const LARGE: usize = (64 << 20) + 5000;
        let Some(write) = BesideRows::begin("durable=yes", LARGE) else {
            return;
        };
        write.request.finish().unwrap();
        assert!(write.written() == write.memory);
        let report = write.request.report().unwrap();
        assert_eq!(report.bytes_by(Path::HostBuffered), LARGE as u64);
        assert!(
            report.note.contains("written through the page cache"),
            "{}",
            report.note
        );
    }
}
