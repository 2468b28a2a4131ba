//! cuFile's statistics, which show the path that bytes took.

use std::mem::{offset_of, size_of};
use std::ptr;

use super::{CUfileError, CuFile};

pub const CUFILE_GPU_UUID_LEN: usize = 16;
pub const CUFILE_MAX_GPUS: usize = 16;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUfileOpCounter {
    pub ok: u64,
    pub err: u64,
}

/// Operations and bytes of the whole process. The members that Penstock does not read have no names
/// here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfileStatsLevel1 {
    pub read_ops: CUfileOpCounter,
    pub write_ops: CUfileOpCounter,
    pub hdl_register_ops: CUfileOpCounter,
    pub hdl_deregister_ops: CUfileOpCounter,
    pub buf_register_ops: CUfileOpCounter,
    pub buf_deregister_ops: CUfileOpCounter,
    pub read_bytes: u64,
    pub write_bytes: u64,
    _rates: [u64; 8],
    _batches: [[u64; 14]; 3],
    /// The members for `cuFileReadv` and `cuFileWritev`, since 1.19.
    vectors: [u64; 14],
}

/// Level 1, and histograms of operation sizes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfileStatsLevel2 {
    pub basic: CUfileStatsLevel1,
    pub read_size_kb_hist: [u64; 32],
    pub write_size_kb_hist: [u64; 32],
}

/// The operations of one GPU, by the path that they took: PCIe peer-to-peer, nvidia-fs, or cuFile's
/// own POSIX fallback.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfilePerGpuStats {
    pub uuid: [u8; CUFILE_GPU_UUID_LEN],
    pub read_bytes: u64,
    _read_rates: [u64; 3],
    pub n_total_reads: u64,
    pub n_p2p_reads: u64,
    pub n_nvfs_reads: u64,
    pub n_posix_reads: u64,
    pub n_unaligned_reads: u64,
    _read_kinds: [u64; 3],
    pub n_reads_err: u64,
    /// The header has this spelling.
    pub writes_bytes: u64,
    _write_rates: [u64; 3],
    pub n_total_writes: u64,
    pub n_p2p_writes: u64,
    pub n_nvfs_writes: u64,
    pub n_posix_writes: u64,
    pub n_unaligned_writes: u64,
    _n_dr_writes: u64,
    pub n_writes_err: u64,
    pub n_mmap: u64,
    pub n_mmap_ok: u64,
    pub n_mmap_err: u64,
    pub n_mmap_free: u64,
    pub reg_bytes: u64,
}

/// Level 2, and the counters of each GPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfileStatsLevel3 {
    pub detailed: CUfileStatsLevel2,
    pub num_gpus: u32,
    pub per_gpu_stats: [CUfilePerGpuStats; CUFILE_MAX_GPUS],
}

impl CUfileStatsLevel3 {
    /// The entries that are in use.
    pub fn gpus(&self) -> &[CUfilePerGpuStats] {
        &self.per_gpu_stats[..(self.num_gpus as usize).min(CUFILE_MAX_GPUS)]
    }
}

/// The offset at which 1.19 inserted the `readv` and `writev` fields, and their size in bytes.
const VECTOR_FIELDS_AT: usize = offset_of!(CUfileStatsLevel1, vectors);
const VECTOR_FIELDS_LEN: usize = size_of::<CUfileStatsLevel1>() - VECTOR_FIELDS_AT;

/// Memory for a later version with a larger struct, which must not write beyond it.
#[repr(C)]
struct Received {
    stats: CUfileStatsLevel3,
    slack: [u64; 512],
}

impl CuFile {
    /// The statistics so far; `Ok(None)` if this cuFile has no statistics. They count only after
    /// `cuFileSetStatsLevel(3)` and `cuFileStatsStart`.
    ///
    /// Before 1.19 the library writes a struct without the `readv` and `writev` fields; this
    /// function converts it to the present layout. `cuFileReadv` is as old as those fields, so its
    /// presence distinguishes the two layouts.
    pub fn stats_level3(&self) -> Result<Option<Box<CUfileStatsLevel3>>, CUfileError> {
        let Some(query) = self.cuFileGetStatsL3 else {
            return Ok(None);
        };
        let mut received = Box::new(Received {
            stats: CUfileStatsLevel3::default(),
            slack: [0; 512],
        });
        // SAFETY: the pointer is to the whole of `received`, which is larger than the struct of any
        // known version, so the library writes only inside it.
        let result = unsafe { query((&raw mut *received).cast()) };
        if !result.is_success() {
            return Err(result);
        }
        if self.cuFileReadv.is_none() {
            insert_vector_fields(&mut received.stats);
        }
        Ok(Some(Box::new(received.stats)))
    }
}

/// Converts a struct that a version before 1.19 has filled to the present layout, with zeros for the
/// missing fields.
fn insert_vector_fields(stats: &mut CUfileStatsLevel3) {
    let bytes = (&raw mut *stats).cast::<u8>();
    let moved = size_of::<CUfileStatsLevel3>() - VECTOR_FIELDS_AT - VECTOR_FIELDS_LEN;
    // SAFETY: both ranges lie inside `stats`, which consists of integers, for which all bytes are
    // valid.
    unsafe {
        let at = bytes.add(VECTOR_FIELDS_AT);
        ptr::copy(at, at.add(VECTOR_FIELDS_LEN), moved);
        ptr::write_bytes(at, 0, VECTOR_FIELDS_LEN);
    }
}

// The layout of the structs of cufile.h 1.19 and 1.20 on 64-bit Linux. Those of 1.15 to 1.18 lack the
// last 112 bytes of level 1.
const _: () = {
    assert!(VECTOR_FIELDS_AT == 512 && VECTOR_FIELDS_LEN == 112);

    assert!(size_of::<CUfileOpCounter>() == 16);
    assert!(size_of::<CUfileStatsLevel1>() == 624);
    assert!(offset_of!(CUfileStatsLevel1, read_bytes) == 96);

    assert!(size_of::<CUfileStatsLevel2>() == 1136);
    assert!(offset_of!(CUfileStatsLevel2, read_size_kb_hist) == 624);
    assert!(offset_of!(CUfileStatsLevel2, write_size_kb_hist) == 880);

    assert!(size_of::<CUfilePerGpuStats>() == 248);
    assert!(offset_of!(CUfilePerGpuStats, read_bytes) == 16);
    assert!(offset_of!(CUfilePerGpuStats, n_p2p_reads) == 56);
    assert!(offset_of!(CUfilePerGpuStats, n_nvfs_reads) == 64);
    assert!(offset_of!(CUfilePerGpuStats, n_posix_reads) == 72);
    assert!(offset_of!(CUfilePerGpuStats, writes_bytes) == 120);
    assert!(offset_of!(CUfilePerGpuStats, n_p2p_writes) == 160);
    assert!(offset_of!(CUfilePerGpuStats, n_nvfs_writes) == 168);
    assert!(offset_of!(CUfilePerGpuStats, n_posix_writes) == 176);
    assert!(offset_of!(CUfilePerGpuStats, n_writes_err) == 200);
    assert!(offset_of!(CUfilePerGpuStats, reg_bytes) == 240);

    assert!(size_of::<CUfileStatsLevel3>() == 5112);
    assert!(offset_of!(CUfileStatsLevel3, num_gpus) == 1136);
    assert!(offset_of!(CUfileStatsLevel3, per_gpu_stats) == 1144);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_an_older_cufile_land_in_the_right_fields() {
        let mut stats = CUfileStatsLevel3::default();
        stats.detailed.basic.read_bytes = 11;
        let bytes = (&raw mut stats).cast::<u8>();
        // The offsets are those of the header of 1.18.
        // SAFETY: each offset lies inside `stats` and is aligned for its type.
        unsafe {
            bytes.add(512).cast::<u64>().write(22);
            bytes.add(1024).cast::<u32>().write(2);
            bytes.add(1032 + 248 + 72).cast::<u64>().write(33);
            bytes.add(1032 + 15 * 248 + 240).cast::<u64>().write(44);
        }
        insert_vector_fields(&mut stats);
        assert_eq!(stats.detailed.basic.read_bytes, 11);
        assert_eq!(stats.detailed.basic.vectors, [0; 14]);
        assert_eq!(stats.detailed.read_size_kb_hist[0], 22);
        assert_eq!(stats.gpus().len(), 2);
        assert_eq!(stats.gpus()[1].n_posix_reads, 33);
        assert_eq!(stats.per_gpu_stats[15].reg_bytes, 44);
    }

    #[test]
    fn a_count_of_gpus_beyond_the_table_is_cut() {
        let stats = CUfileStatsLevel3 {
            num_gpus: 99,
            ..Default::default()
        };
        assert_eq!(stats.gpus().len(), CUFILE_MAX_GPUS);
    }
}
