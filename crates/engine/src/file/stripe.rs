//! Stripes on Lustre: those of a new file, and the blocks that suit the stripes of an existing
//! file.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use super::layout::{self, Component, LOV_PATTERN_RAID0, LOV_USER_MAGIC_V1};
use super::open_with;
use super::system::{FileSystem, LUSTRE};

/// The stripes of a new file. Its folder determines the values that are left open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Striping {
    /// The number of storage targets.
    pub count: Option<u32>,
    /// Adjacent bytes on one target.
    pub size: Option<u64>,
}

/// `_IOW('f', 154, long)`. Setting the attribute `lustre.lov` has no effect and no error if the
/// file has stripes, while this call fails with EEXIST.
const LL_IOC_LOV_SETSTRIPE: c_ulong = 0x4008_669A;

/// Creates the file without stripes, so that they can be set: two flags of open(2) that mean
/// nothing for a regular file.
const O_LOV_DELAY_CREATE: c_int = libc::O_NOCTTY | libc::O_ASYNC;

/// Opens a file as open(2) does. A file that the call creates on Lustre gets the stripes. If it
/// gets none, the returned text gives the reason.
pub fn create(
    path: &Path,
    flags: c_int,
    mode: u32,
    striping: &Striping,
) -> io::Result<(OwnedFd, Option<String>)> {
    if flags & libc::O_CREAT == 0 || *striping == Striping::default() {
        return Ok((open_with(path, flags, mode)?, None));
    }
    if !is_on_lustre(path) {
        let opened = open_with(path, flags, mode)?;
        let name = FileSystem::of(opened.as_raw_fd()).name();
        let note = format!("stripes are not set: the file system ({name}) has no stripes");
        return Ok((opened, Some(note)));
    }
    create_striped(path, flags, mode, striping, set_stripes)
}

fn create_striped(
    path: &Path,
    flags: c_int,
    mode: u32,
    striping: &Striping,
    set: impl FnOnce(RawFd, &[u8]) -> io::Result<()>,
) -> io::Result<(OwnedFd, Option<String>)> {
    let layout = encode(striping)?;
    let made = match open_with(path, flags | libc::O_EXCL | O_LOV_DELAY_CREATE, mode) {
        Ok(made) => made,
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) && flags & libc::O_EXCL == 0 => {
            let note = "stripes are not set: the file already has its own";
            return Ok((open_with(path, flags, mode)?, Some(note.to_owned())));
        }
        Err(error) => return Err(error),
    };
    match set(made.as_raw_fd(), &layout) {
        Ok(()) => Ok((made, None)),
        Err(error) => {
            // Opening it again gives it the stripes of its folder.
            drop(made);
            let opened = open_with(path, flags & !libc::O_EXCL, mode)?;
            Ok((opened, Some(format!("stripes are not set: {error}"))))
        }
    }
}

/// Whether a path lies on Lustre; if the file does not exist yet, whether its folder does.
fn is_on_lustre(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = open_with(folder, libc::O_PATH, 0);
    folder.is_ok_and(|folder| FileSystem::magic_of(folder.as_raw_fd()) == LUSTRE)
}

fn set_stripes(file: RawFd, layout: &[u8]) -> io::Result<()> {
    // SAFETY: the call reads the layout, whose length follows from its magic number.
    match unsafe { libc::ioctl(file, LL_IOC_LOV_SETSTRIPE, layout.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A `lov_user_md_v1` for a new file.
fn encode(striping: &Striping) -> io::Result<[u8; 32]> {
    let too_much = |_| io::Error::from_raw_os_error(libc::EINVAL);
    // 0 means the folder's value.
    let size = u32::try_from(striping.size.unwrap_or(0)).map_err(too_much)?;
    let count = u16::try_from(striping.count.unwrap_or(0)).map_err(too_much)?;
    let mut layout = [0; 32];
    layout[0..4].copy_from_slice(&LOV_USER_MAGIC_V1.to_le_bytes());
    layout[4..8].copy_from_slice(&LOV_PATTERN_RAID0.to_le_bytes());
    // Bytes from 8 on are an identifier that the server assigns.
    layout[24..28].copy_from_slice(&size.to_le_bytes());
    layout[28..30].copy_from_slice(&count.to_le_bytes());
    // The server chooses the first target.
    layout[30..32].copy_from_slice(&u16::MAX.to_le_bytes());
    Ok(layout)
}

/// The stripe size of an open file on Lustre, in bytes.
pub(super) fn size_of(file: RawFd) -> Option<u64> {
    main_size(&layout::of(file))
}

/// The stripe size of a layout. For a composite layout, it is that of the component that covers most of
/// the file, which most large transfers use. The first components serve files that stay small.
fn main_size(components: &[Component]) -> Option<u64> {
    components
        .iter()
        .filter(|component| !component.stale)
        .filter_map(|component| Some((component.end - component.start, component.stripe_size?)))
        // Components of the same length are mirrors; the first one counts.
        .rev()
        .max_by_key(|(bytes, _)| *bytes)
        .map(|(_, size)| size)
}

/// Bytes of a block for stripes of this size: several stripes, or a fraction of one, so that blocks
/// begin where stripes do.
pub(crate) fn block(stripe: u64) -> u64 {
    const UNIT: u64 = 64 << 10;
    const LEAST: u64 = 1 << 20;
    const MOST: u64 = 16 << 20;
    if stripe <= LEAST {
        return LEAST.next_multiple_of(stripe);
    }
    (stripe.div_ceil(MOST)..=stripe / LEAST)
        .find(|parts| stripe.is_multiple_of(parts * UNIT))
        .map_or(MOST, |parts| stripe / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::file::layout::decode;
    use crate::file::layout::tests::{
        END_OF_FILE, INSTANTIATED, STALE, bytes, composite, large, on_metadata_server, small,
    };

    fn stripe_size(layout: &[u8]) -> Option<u64> {
        main_size(&decode(layout))
    }

    #[test]
    fn a_plain_layout_gives_its_stripe_size() {
        assert_eq!(stripe_size(&large()), Some(4 << 20));
        assert_eq!(stripe_size(&small()), Some(1 << 20));
        assert_eq!(stripe_size(&on_metadata_server()), None);
    }

    #[test]
    fn the_component_that_covers_most_counts_in_a_composite_layout() {
        let components = [
            (INSTANTIATED, 0, 1 << 20, on_metadata_server()),
            (INSTANTIATED, 1 << 20, 1 << 30, small()),
            // This component is not in use yet, as the file is small.
            (0, 1 << 30, END_OF_FILE, large()),
        ];
        assert_eq!(stripe_size(&composite(&components)), Some(4 << 20));
        assert_eq!(stripe_size(&composite(&components[..2])), Some(1 << 20));
        assert_eq!(stripe_size(&composite(&components[..1])), None);
        assert_eq!(stripe_size(&composite(&[])), None);
        let mirrors = [
            (STALE | INSTANTIATED, 0, END_OF_FILE, small()),
            (INSTANTIATED, 0, END_OF_FILE, large()),
            (INSTANTIATED, 0, END_OF_FILE, on_metadata_server()),
        ];
        assert_eq!(stripe_size(&composite(&mirrors)), Some(4 << 20));
    }

    #[test]
    fn a_striping_is_a_layout_that_leaves_unset_values_open() {
        let all = Striping {
            count: Some(8),
            size: Some(4 << 20),
        };
        let expected = "d00bd10b 01000000 0000000000000000 0000000000000000 00004000 0800 ffff";
        assert_eq!(encode(&all).unwrap()[..], bytes(expected));
        assert_eq!(stripe_size(&encode(&all).unwrap()), all.size);
        let none = "d00bd10b 01000000 0000000000000000 0000000000000000 00000000 0000 ffff";
        assert_eq!(encode(&Striping::default()).unwrap()[..], bytes(none));
    }

    #[test]
    fn a_striping_that_lustre_cannot_express_is_refused() {
        let (count, size) = (Some(70_000), None);
        assert!(encode(&Striping { count, size }).is_err());
        let (count, size) = (None, Some(4 << 30));
        assert!(encode(&Striping { count, size }).is_err());
    }

    #[test]
    fn blocks_begin_where_stripes_do() {
        const MIB: u64 = 1 << 20;
        for (stripe, expected) in [
            (64 << 10, MIB),
            (192 << 10, 6 * (192 << 10)),
            (MIB, MIB),
            (4 * MIB, 4 * MIB),
            (5 * MIB, 5 * MIB),
            (24 * MIB, 12 * MIB),
            (1 << 30, 16 * MIB),
        ] {
            assert_eq!(block(stripe), expected, "{stripe}");
        }
        // A stripe without suitable divisors is cut at some place.
        assert_eq!(block((64 << 10) * 10_007), 16 * MIB);
    }

    const NEW: c_int = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    const EIGHT: Striping = Striping {
        count: Some(8),
        size: None,
    };

    #[test]
    fn a_file_is_opened_normally_on_a_file_system_without_stripes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (_, note) = create(&path, NEW, 0o640, &EIGHT).unwrap();
        assert!(note.unwrap().contains("has no stripes"));
        assert_eq!(
            create(&path, NEW, 0o640, &Striping::default()).unwrap().1,
            None
        );
        let again = create(&path, NEW | libc::O_EXCL, 0o640, &EIGHT).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        let missing = create(&folder.path().join("a/b"), NEW, 0o640, &EIGHT).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_new_file_is_given_its_stripes_before_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut given = Vec::new();
        let set = |file: RawFd, layout: &[u8]| {
            // SAFETY: fcntl with F_GETFL on an open descriptor touches no memory.
            let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
            assert_eq!(flags & libc::O_ACCMODE, libc::O_RDWR);
            given = layout.to_vec();
            Ok(())
        };
        let (_, note) = create_striped(&path, NEW, 0o640, &EIGHT, set).unwrap();
        assert_eq!(note, None);
        assert_eq!(given, encode(&EIGHT).unwrap());
    }

    #[test]
    fn an_existing_file_keeps_its_stripes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"old").unwrap();
        let never = |_: RawFd, _: &[u8]| panic!("the file has stripes already");
        let (_, note) = create_striped(&path, NEW, 0o640, &EIGHT, never).unwrap();
        assert!(note.unwrap().contains("already"));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_file_is_created_even_if_its_stripes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (file, note) =
            create_striped(&path, NEW | libc::O_EXCL, 0o640, &EIGHT, set_stripes).unwrap();
        // The system reports that the file is not on Lustre.
        assert!(note.unwrap().contains("not set"));
        use std::io::Write;
        std::fs::File::from(file).write_all(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
