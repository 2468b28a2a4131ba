//! Structs of the C API, as `penstock.h` declares them. Pointers are addresses, so that any thread may
//! hold a struct.

/// `penstock_axis`
#[repr(C)]
pub(crate) struct CAxis {
    pub(crate) start: u64,
    pub(crate) step: u64,
    pub(crate) count: u64,
    indices: usize,
}

impl CAxis {
    pub(crate) fn strided(start: u64, step: u64, count: u64) -> CAxis {
        CAxis {
            start,
            step,
            count,
            indices: 0,
        }
    }

    /// Describes a list of indices, which must outlive the axis.
    pub(crate) fn list(indices: &[u64]) -> CAxis {
        CAxis {
            start: 0,
            step: 0,
            count: indices.len() as u64,
            indices: indices.as_ptr().expose_provenance(),
        }
    }

    /// Returns the last index of a slice that is not empty.
    pub(crate) fn last(&self) -> u64 {
        self.start + self.step * (self.count - 1)
    }
}

/// `penstock_selection`
#[repr(C)]
#[derive(Default)]
pub(crate) struct CSelection {
    struct_size: usize,
    rank: i32,
    reserved: i32,
    axes: usize,
    points: usize,
    point_count: u64,
}

impl CSelection {
    /// Describes all combinations of the indices of axes, which must outlive the struct.
    pub(crate) fn axes(axes: &[CAxis]) -> CSelection {
        CSelection {
            struct_size: size_of::<CSelection>(),
            rank: axes.len() as i32,
            axes: axes.as_ptr().expose_provenance(),
            ..CSelection::default()
        }
    }

    /// Describes points, which must outlive the struct.
    pub(crate) fn points(rank: usize, points: &[u64]) -> CSelection {
        CSelection {
            struct_size: size_of::<CSelection>(),
            rank: rank as i32,
            points: points.as_ptr().expose_provenance(),
            point_count: (points.len() / rank) as u64,
            ..CSelection::default()
        }
    }
}

/// `penstock_array`
#[repr(C)]
pub(crate) struct CArray {
    pub(crate) struct_size: usize,
    pub(crate) data: usize,
    pub(crate) element: i64,
    pub(crate) rank: i32,
    pub(crate) reserved: i32,
    pub(crate) shape: usize,
    pub(crate) strides: usize,
    pub(crate) decoding: usize,
}

/// `penstock_reader_facts`
#[repr(C)]
pub(crate) struct CFacts {
    struct_size: usize,
    ways: i32,
    pub(crate) rank: i32,
    number: i32,
    order: i32,
    size: u64,
    shape: [u64; 32],
}

impl CFacts {
    /// Returns whether HDF5 may read.
    pub(crate) fn may_call_hdf5(&self) -> bool {
        self.ways & 2 != 0
    }

    /// Returns the shape of a dataset that cannot change.
    pub(crate) fn fixed_shape(&self) -> Option<&[u64]> {
        (self.ways & 1 != 0).then(|| &self.shape[..self.rank as usize])
    }

    /// Returns NumPy's name of the number in the file that each element is, such as `<f4`.
    pub(crate) fn number(&self) -> Option<String> {
        let letter = match (u8::try_from(self.number).ok()?, self.size) {
            (letter @ (b'i' | b'u'), 1 | 2 | 4 | 8) | (letter @ b'f', 2 | 4 | 8) => letter,
            _ => return None,
        };
        let order = if self.order == 0 { '<' } else { '>' };
        Some(format!("{order}{}{}", char::from(letter), self.size))
    }
}

impl Default for CFacts {
    fn default() -> CFacts {
        CFacts {
            struct_size: size_of::<CFacts>(),
            ways: 0,
            rank: 0,
            number: 0,
            order: 0,
            size: 0,
            shape: [0; 32],
        }
    }
}
