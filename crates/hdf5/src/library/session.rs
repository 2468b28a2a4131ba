//! Calls of HDF5: silent, with HDF5's own words in each error, and identifiers that are given back.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::connector::{H5O_INFO_BASIC, H5O_info2_t};
use penstock_sys::hdf5::{
    ErrorAuto, H5E_DEFAULT, H5E_WALK_UPWARD, H5E_error2_t, Hdf5, herr_t, hid_t,
};

/// A stretch of time in which this thread may call HDF5. HDF5 prints no errors meanwhile.
pub struct Session<'a> {
    /// The HDF5 that may be called.
    pub hdf5: &'a Hdf5,
    print: Option<ErrorAuto>,
    print_data: *mut c_void,
    /// Error stacks belong to a thread, and so does a session.
    not_send: PhantomData<*mut ()>,
}

impl<'a> Session<'a> {
    /// # Safety
    /// Until the session is dropped, no other thread calls this HDF5, unless it was built
    /// thread-safe. Identifiers need no promise: HDF5 checks them.
    pub unsafe fn begin(hdf5: &'a Hdf5) -> Self {
        let mut print = None;
        let mut print_data = ptr::null_mut();
        // SAFETY: both places are valid, and no other thread is in HDF5, as the caller promised.
        unsafe {
            (hdf5.H5Eget_auto2)(H5E_DEFAULT, &mut print, &mut print_data);
            (hdf5.H5Eset_auto2)(H5E_DEFAULT, None, ptr::null_mut());
        }
        Session {
            hdf5,
            print,
            print_data,
            not_send: PhantomData,
        }
    }

    /// An error if `status` is negative. `action` reads like "get the shape".
    pub fn check(&self, status: c_int, action: &str) -> Result<c_int> {
        if status < 0 {
            return Err(self.failed(action));
        }
        Ok(status)
    }

    /// Takes over an identifier that HDF5 has returned; an error if it is none. `action` is as in [`check`](Self::check).
    pub fn own(&self, id: hid_t, close: Close, action: &str) -> Result<Id> {
        if id < 0 {
            return Err(self.failed(action));
        }
        Ok(Id { id, close })
    }

    /// The error of the call that has just failed, in HDF5's words.
    pub fn failed(&self, action: &str) -> Error {
        let mut stack: Vec<(String, String)> = Vec::new();
        let data: *mut c_void = ptr::from_mut(&mut stack).cast();
        // SAFETY: `collect` is given the vector that `data` points to, which outlives the call, and
        // no other thread is in HDF5 while a session lives.
        unsafe { (self.hdf5.H5Ewalk2)(H5E_DEFAULT, H5E_WALK_UPWARD, collect, data) };
        let mut text = format!("HDF5 cannot {action}");
        if let Some((function, what)) = stack.first() {
            // What a driver adds to the failure of a system call is told apart.
            let what = what.split(": time = ").next().unwrap_or_default();
            text.push_str(&format!(": {what} ({function})"));
        }
        if stack.len() > 1
            && let Some((function, what)) = stack.last()
        {
            text.push_str(&format!(", so {what} ({function})"));
        }
        let innermost = stack.first().map_or("", |(_, what)| what);
        system_error(innermost, &text).unwrap_or_else(|| Error::new(Kind::Io, text))
    }

    /// What tells an object of HDF5 from all others that are open: the number of its file, and its token.
    pub fn object(&self, id: hid_t) -> Result<(u64, [u8; 16])> {
        let mut info = H5O_info2_t::default();
        // SAFETY: HDF5 checks the identifier, and there is a place for the answer.
        let status = unsafe { (self.hdf5.H5Oget_info3)(id, &mut info, H5O_INFO_BASIC) };
        self.check(status, "tell which object this is")?;
        Ok((info.fileno, info.token))
    }

    /// A text that HDF5 writes into a buffer whose size it tells when asked without one.
    pub fn text(
        &self,
        action: &str,
        mut get: impl FnMut(*mut c_char, usize) -> isize,
    ) -> Result<Vec<u8>> {
        let Ok(length) = usize::try_from(get(ptr::null_mut(), 0)) else {
            return Err(self.failed(action));
        };
        let mut buffer = vec![0u8; length.saturating_add(1)];
        if get(buffer.as_mut_ptr().cast(), buffer.len()) < 0 {
            return Err(self.failed(action));
        }
        buffer.truncate(buffer.iter().position(|b| *b == 0).unwrap_or(length));
        Ok(buffer)
    }

    /// Takes over a text that HDF5 has allocated.
    pub fn take_text(&self, text: *mut c_char, action: &str) -> Result<String> {
        if text.is_null() {
            return Err(self.failed(action));
        }
        // SAFETY: HDF5 returned a NUL-terminated text that is ours to free, and frees it itself.
        unsafe {
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.hdf5.H5free_memory)(text.cast());
            Ok(copy)
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: puts back what `begin` found, still under the caller's promise.
        unsafe { (self.hdf5.H5Eset_auto2)(H5E_DEFAULT, self.print, self.print_data) };
    }
}

/// A `close` function of HDF5.
pub type Close = unsafe extern "C" fn(hid_t) -> herr_t;

/// An identifier that is closed when dropped. Only made by a session, and never outlives it.
#[must_use]
pub struct Id {
    id: hid_t,
    close: Close,
}

impl Id {
    /// The identifier, which stays open as long as this value.
    pub fn get(&self) -> hid_t {
        self.id
    }

    /// Leaves it open: whoever gets it closes it.
    pub fn keep(self) -> hid_t {
        std::mem::ManuallyDrop::new(self).id
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the identifier is open and of the kind that `close` closes.
        unsafe { (self.close)(self.id) };
    }
}

/// The error of a system call that failed below HDF5, if that is what its innermost words tell:
/// "file write failed: ..., filename = '/f.h5', ..., errno = 28, error message = '...', ...,
/// total write size = 512, ..., offset = 2048".
fn system_error(words: &str, text: &str) -> Option<Error> {
    let number = |name: &str| {
        let (_, rest) = words.rsplit_once(name)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse::<u64>().ok()
    };
    let errno = i32::try_from(number("errno = ")?).ok().filter(|n| *n > 0)?;
    let error = Error::os(&io::Error::from_raw_os_error(errno), text);
    let size = number("total write size = ").or_else(|| number("total read size = "));
    let name = words
        .split_once("filename = '")
        .and_then(|(_, rest)| rest.split_once("', file descriptor"));
    Some(match name {
        Some((name, _)) => error.at(
            Path::new(name),
            number(", offset = ").unwrap_or(0),
            size.unwrap_or(0),
        ),
        None => error,
    })
}

/// HDF5's stacks are at most 32 deep.
const DEEPEST: usize = 64;

unsafe extern "C" fn collect(_: c_uint, entry: *const H5E_error2_t, data: *mut c_void) -> herr_t {
    // SAFETY: `failed` passes a vector that nothing else uses during the walk.
    let stack = unsafe { &mut *data.cast::<Vec<(String, String)>>() };
    if stack.len() < DEEPEST && !entry.is_null() {
        // SAFETY: HDF5 gives a valid entry; its texts are NUL-terminated or null.
        unsafe { stack.push((copy((*entry).func_name), copy((*entry).desc))) };
    }
    0
}

/// # Safety
/// `text` is null or NUL-terminated.
unsafe fn copy(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_failed_write_give_errno_file_and_range() {
        let words = "file write failed: time = Sun Nov 22 01:00:00 2026\n, filename = '/d/a, b.h5', \
            file descriptor = 5, errno = 28, error message = 'No space left on device', \
            buf = 0x7f00, total write size = 512, bytes this sub-write = 512, offset = 2048";
        let error = system_error(words, "HDF5 cannot write").unwrap();
        assert_eq!(error.kind(), Kind::NoSpace);
        assert_eq!(error.os_errno(), libc::ENOSPC);
        assert_eq!(error.path(), Some(Path::new("/d/a, b.h5")));
        assert_eq!((error.offset(), error.length()), (2048, 512));
    }

    #[test]
    fn words_without_an_errno_tell_no_system_error() {
        assert!(system_error("inappropriate type", "HDF5 cannot read").is_none());
    }
}
