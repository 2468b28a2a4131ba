//! The copy of HDF5 that calls the connector.

use std::ffi::c_void;
use std::ptr;

use penstock_sys::hdf5::pass_through::Functions;
use penstock_sys::hdf5::{ErrorAuto, H5E_DEFAULT, H5F_CLOSE_WEAK, Hdf5, hid_t};

use penstock_hdf5::library::copies::hdf5_of;

/// The copy of HDF5 that an object belongs to, and its functions for connectors. Only threads
/// inside a call of this copy use it.
#[derive(Clone, Copy)]
pub(crate) struct CallingLibrary {
    pub(crate) hdf5: &'static Hdf5,
    pub(crate) calls: &'static Functions,
    /// Index of the copy among those that the process uses.
    pub(crate) slot: usize,
}

impl CallingLibrary {
    /// Returns the copy in a slot that [`slot_of`](penstock_hdf5::library::copies::slot_of) has
    /// returned. Returns `None` if it exports no functions for connectors.
    pub(crate) fn of(slot: usize) -> Option<CallingLibrary> {
        let hdf5 = hdf5_of(slot)?;
        let calls = hdf5.pass_through().ok()?;
        Some(CallingLibrary { hdf5, calls, slot })
    }

    /// Runs `body` and restores the error stack. Most functions of HDF5 clear the stack, which may
    /// hold unread errors of the connector below. An empty stack, the usual case, costs little.
    pub(crate) fn keeping_errors<T>(&self, body: impl FnOnce() -> T) -> T {
        // SAFETY: the thread is inside a call of this HDF5.
        if unsafe { (self.calls.H5Eget_num)(H5E_DEFAULT) } == 0 {
            let value = body();
            // SAFETY: as above.
            unsafe {
                if (self.calls.H5Eget_num)(H5E_DEFAULT) > 0 {
                    (self.hdf5.H5Eclear2)(H5E_DEFAULT);
                }
            }
            return value;
        }
        // SAFETY: as above.
        let errors = unsafe { (self.calls.H5Eget_current_stack)() };
        let value = body();
        if errors >= 0 {
            // SAFETY: HDF5 has just returned this stack. The call closes it.
            unsafe { (self.calls.H5Eset_current_stack)(errors) };
        }
        value
    }

    /// Returns whether HDF5 lets objects stay open after the close of a file opened with this list.
    ///
    /// # Safety
    /// The thread is inside a call of the library, which checks the identifier.
    pub(crate) unsafe fn lets_objects_stay_open(&self, fapl: hid_t) -> bool {
        let mut degree = -1;
        // SAFETY: the caller guarantees this; `degree` receives the answer.
        self.keeping_errors(|| unsafe { (self.calls.H5Pget_fclose_degree)(fapl, &mut degree) });
        degree == H5F_CLOSE_WEAK
    }
}

/// Prevents HDF5 from printing errors on the calling thread until it is dropped.
///
/// HDF5 prints when the application's call fails. It would also print for each of its functions for
/// connectors, because these are calls, too.
pub(crate) struct Quiet {
    library: CallingLibrary,
    /// The function that prints, and its argument. `None` if no function prints, or one with HDF5
    /// 1.6's interface.
    print: Option<(ErrorAuto, *mut c_void)>,
}

impl Quiet {
    pub(crate) fn begin(library: CallingLibrary) -> Quiet {
        let (mut is_v2, mut print, mut data) = (0, None, ptr::null_mut());
        // SAFETY: the pointers are valid for the answers, and the thread is inside a call of this HDF5.
        unsafe {
            (library.calls.H5Eauto_is_v2)(H5E_DEFAULT, &mut is_v2);
            if is_v2 != 0 {
                (library.hdf5.H5Eget_auto2)(H5E_DEFAULT, &mut print, &mut data);
            }
            if print.is_some() {
                (library.hdf5.H5Eset_auto2)(H5E_DEFAULT, None, ptr::null_mut());
            }
        }
        let print = print.map(|print| (print, data));
        Quiet { library, print }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some((print, data)) = self.print {
            // SAFETY: `begin` has found this function and its argument.
            unsafe { (self.library.hdf5.H5Eset_auto2)(H5E_DEFAULT, Some(print), data) };
        }
    }
}
