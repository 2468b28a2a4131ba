//! The layout that Lustre gave a file, from the attribute `lustre.lov`.
//!
//! Layouts are those of `lustre_user.h`: `lov_user_md_v1` and `_v3`, and `lov_comp_md_v1`, which
//! gives each part of a file its own layout. Numbers have the byte order of the host, which is
//! little-endian on all machines with CUDA.

use std::os::fd::RawFd;

pub(super) const LOV_USER_MAGIC_V1: u32 = 0x0BD1_0BD0;
const LOV_USER_MAGIC_V3: u32 = 0x0BD3_0BD0;
const LOV_USER_MAGIC_COMP_V1: u32 = 0x0BD6_0BD0;
pub(super) const LOV_PATTERN_RAID0: u32 = 0x001;
/// Data on the metadata server, which has no stripes.
const LOV_PATTERN_MDT: u32 = 0x100;
const LCME_FL_STALE: u32 = 0x1;
/// All targets, in a layout of a file without blocks.
const LOV_ALL_STRIPES: u16 = u16::MAX;

/// A part of a file, or all of it, with a layout of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Component {
    /// The first byte of the component in the file.
    pub start: u64,
    /// The byte behind the component; `u64::MAX` if it reaches to the end of the file.
    pub end: u64,
    /// Adjacent bytes on one target; `None` for data on the metadata server.
    pub stripe_size: Option<u64>,
    /// The number of targets; `None` for all of them.
    pub stripe_count: Option<u16>,
    /// The numbers of these targets, in the order of the stripes; empty if nothing is allocated
    /// yet.
    pub targets: Vec<u32>,
    /// Whether this is a mirror that is not up to date.
    pub stale: bool,
}

/// The layout of an open file on Lustre; empty if the system does not report it.
pub(crate) fn of(file: RawFd) -> Vec<Component> {
    // The largest attribute of Linux.
    let mut layout = vec![0u8; 64 << 10];
    let name = c"lustre.lov";
    // SAFETY: the buffer is writable for the length given.
    let length = unsafe {
        libc::fgetxattr(
            file,
            name.as_ptr(),
            layout.as_mut_ptr().cast(),
            layout.len(),
        )
    };
    let length = usize::try_from(length).unwrap_or(0);
    layout.get(..length).map(decode).unwrap_or_default()
}

pub(super) fn decode(layout: &[u8]) -> Vec<Component> {
    if word(layout, 0) != Some(LOV_USER_MAGIC_COMP_V1) {
        return plain(layout, 0, u64::MAX).into_iter().collect();
    }
    let count = word(layout, 12).map_or(0, |counts| counts >> 16);
    (0..count as usize)
        .filter_map(|index| component(layout, index))
        .collect()
}

/// A `lov_user_md` for this range of the file.
fn plain(layout: &[u8], start: u64, end: u64) -> Option<Component> {
    let objects = match word(layout, 0)? {
        LOV_USER_MAGIC_V1 => 32,
        // The layout names a pool of targets.
        LOV_USER_MAGIC_V3 => 48,
        _ => return None,
    };
    let on_metadata_server = word(layout, 4)? & LOV_PATTERN_MDT != 0;
    let size = word(layout, 24)?;
    let count = half(layout, 28)?;
    // A `lov_user_ost_data_v1`, whose last member is the number of the target.
    let target = |index: usize| word(layout, objects + 24 * index + 20);
    Some(Component {
        start,
        end,
        stripe_size: (!on_metadata_server && size > 0).then_some(size.into()),
        stripe_count: (count != LOV_ALL_STRIPES).then_some(count),
        targets: match count {
            LOV_ALL_STRIPES => Vec::new(),
            _ => (0..count.into()).map_while(target).collect(),
        },
        stale: false,
    })
}

/// The `lov_comp_md_entry_v1` with this index.
fn component(layout: &[u8], index: usize) -> Option<Component> {
    let entry = layout.get(32 + 48 * index..)?.get(..48)?;
    let long = |at| Some(u64::from(word(entry, at)?) | u64::from(word(entry, at + 4)?) << 32);
    let (start, end) = (long(8)?, long(16)?);
    let (offset, size) = (word(entry, 24)? as usize, word(entry, 28)? as usize);
    let layout = layout.get(offset..)?.get(..size)?;
    if end < start {
        return None;
    }
    Some(Component {
        stale: word(entry, 4)? & LCME_FL_STALE != 0,
        ..plain(layout, start, end)?
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file on two targets, 4 MiB each, byte by byte as lustre_user.h lays it out.
    const V1: &str = "\
        d00bd10b 01000000 021a0000 00000000 0004 0000 02000000 00004000 0200 0000 \
        a34a0000 00000000 00000000 00000000 00000000 03000000 \
        b14a0000 00000000 00000000 00000000 00000000 00000000";
    /// As above, one target of the pool "flash", 1 MiB.
    const V3: &str = "\
        d00bd30b 01000000 031a0000 00000000 0004 0000 02000000 00001000 0100 0000 \
        666c617368000000 0000000000000000 \
        c24a0000 00000000 00000000 00000000 00000000 01000000";

    pub(crate) fn bytes(hex: &str) -> Vec<u8> {
        let digits: String = hex.split_whitespace().collect();
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(pair).collect()
    }

    pub(crate) fn large() -> Vec<u8> {
        bytes(V1)
    }

    pub(crate) fn small() -> Vec<u8> {
        bytes(V3)
    }

    pub(crate) fn on_metadata_server() -> Vec<u8> {
        let mut layout = small();
        layout[4..8].copy_from_slice(&LOV_PATTERN_MDT.to_le_bytes());
        layout
    }

    pub(crate) const INSTANTIATED: u32 = 0x10;
    pub(crate) const STALE: u32 = LCME_FL_STALE;
    pub(crate) const END_OF_FILE: u64 = u64::MAX;

    /// A `lov_comp_md_v1` of components: flags, first byte and end in the file, and layout.
    pub(crate) fn composite(components: &[(u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
        let mut entries = Vec::new();
        let mut layouts: Vec<u8> = Vec::new();
        for (index, (flags, start, end, layout)) in components.iter().enumerate() {
            let offset = (32 + 48 * components.len() + layouts.len()) as u32;
            entries.extend((index as u32 + 1).to_le_bytes());
            entries.extend(flags.to_le_bytes());
            entries.extend(start.to_le_bytes());
            entries.extend(end.to_le_bytes());
            entries.extend(offset.to_le_bytes());
            entries.extend((layout.len() as u32).to_le_bytes());
            entries.extend([0; 16]);
            layouts.extend(layout);
        }
        let mut all = LOV_USER_MAGIC_COMP_V1.to_le_bytes().to_vec();
        all.extend(((32 + entries.len() + layouts.len()) as u32).to_le_bytes());
        all.extend(7u32.to_le_bytes());
        all.extend(0u16.to_le_bytes());
        all.extend((components.len() as u16).to_le_bytes());
        all.extend([0; 16]);
        all.extend(entries);
        all.extend(layouts);
        all
    }

    #[test]
    fn a_plain_layout_gives_its_stripes_and_their_targets() {
        let whole = Component {
            start: 0,
            end: END_OF_FILE,
            stripe_size: Some(4 << 20),
            stripe_count: Some(2),
            targets: vec![3, 0],
            stale: false,
        };
        let pool = Component {
            stripe_size: Some(1 << 20),
            stripe_count: Some(1),
            targets: vec![1],
            ..whole.clone()
        };
        assert_eq!(decode(&small()), [pool]);
        assert_eq!(decode(&large()), [whole]);
    }

    #[test]
    fn a_composite_layout_gives_each_component() {
        let components = decode(&composite(&[
            (INSTANTIATED, 0, 1 << 20, on_metadata_server()),
            (INSTANTIATED, 1 << 20, END_OF_FILE, large()),
            (STALE | INSTANTIATED, 0, END_OF_FILE, small()),
        ]));
        let found: Vec<_> = components
            .iter()
            .map(|component| {
                (
                    component.start,
                    component.end,
                    component.stripe_size,
                    component.stale,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (0, 1 << 20, None, false),
                (1 << 20, END_OF_FILE, Some(4 << 20), false),
                (0, END_OF_FILE, Some(1 << 20), true),
            ]
        );
    }

    #[test]
    fn a_layout_that_no_file_has_yet_may_name_all_targets_and_none() {
        let mut layout = large()[..32].to_vec();
        layout[28..30].copy_from_slice(&LOV_ALL_STRIPES.to_le_bytes());
        let components = decode(&layout);
        assert_eq!(
            (components[0].stripe_count, &components[0].targets),
            (None, &vec![])
        );
        assert!(decode(&large()[..32])[0].targets.is_empty());
    }

    #[test]
    fn a_truncated_or_unknown_layout_has_no_components() {
        let whole = composite(&[(INSTANTIATED, 0, END_OF_FILE, large())]);
        for layout in [
            &large()[..27],
            &whole[..40],
            &whole[..100],
            b"",
            b"no layout",
        ] {
            assert_eq!(decode(layout), []);
        }
        let mut backwards = composite(&[(INSTANTIATED, 9, 8, large())]);
        assert_eq!(decode(&backwards), []);
        // The header claims more entries than there are, and one component ends beyond every file.
        backwards[14..16].copy_from_slice(&u16::MAX.to_le_bytes());
        backwards[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&backwards), []);
    }
}
