//! Calls of HDF5: silent, with HDF5's own message in each error, and with identifiers that close
//! when dropped.

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

/// A period in which this thread may call HDF5. HDF5 prints no errors meanwhile.
pub struct Session<'a> {
    /// The HDF5 that may be called.
    pub hdf5: &'a Hdf5,
    print: Option<ErrorAuto>,
    print_data: *mut c_void,
    /// Error stacks belong to a thread, so a session does, too.
    not_send: PhantomData<*mut ()>,
}

impl<'a> Session<'a> {
    /// # Safety
    /// Until the session is dropped, no other thread calls this HDF5, unless it was built
    /// thread-safe. Identifiers need no guarantee: HDF5 checks them.
    pub unsafe fn begin(hdf5: &'a Hdf5) -> Self {
        let mut print = None;
        let mut print_data = ptr::null_mut();
        // SAFETY: both places are valid, and the caller guarantees that no other thread is in HDF5.
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

    /// Returns an error if `status` is negative. `action` reads like "get the shape".
    pub fn check(&self, status: c_int, action: &str) -> Result<c_int> {
        if status < 0 {
            return Err(self.failed(action));
        }
        Ok(status)
    }

    /// Takes ownership of an identifier that HDF5 has returned, or returns an error if it is
    /// negative. `action` is as in [`check`](Self::check).
    pub fn own(&self, id: hid_t, close: Close, action: &str) -> Result<Id> {
        if id < 0 {
            return Err(self.failed(action));
        }
        Ok(Id { id, close })
    }

    /// Returns the functions of HDF5 that have just failed, innermost first, and their messages.
    fn error_stack(&self) -> Vec<(String, String)> {
        let mut stack: Vec<(String, String)> = Vec::new();
        let data: *mut c_void = ptr::from_mut(&mut stack).cast();
        // SAFETY: `collect` receives the vector that `data` points to, which outlives the call, and
        // no other thread is in HDF5 while a session lives.
        unsafe { (self.hdf5.H5Ewalk2)(H5E_DEFAULT, H5E_WALK_UPWARD, collect, data) };
        stack
    }

    /// Returns whether the call that has just failed did so in this function of HDF5.
    pub(crate) fn has_failed_in(&self, function: &str) -> bool {
        self.error_stack().iter().any(|(name, _)| name == function)
    }

    /// Returns the error of the call that has just failed, with HDF5's message.
    pub fn failed(&self, action: &str) -> Error {
        let stack = self.error_stack();
        let mut text = format!("HDF5 cannot {action}");
        if let Some((function, what)) = stack.first() {
            // The details that a driver adds to a failed system call are parsed separately.
            let what = what.split(": time = ").next().unwrap_or_default();
            text.push_str(&format!(": {what} ({function})"));
        }
        if let [_, .., (function, what)] = &stack[..] {
            text.push_str(&format!(", so {what} ({function})"));
        }
        let innermost = stack.first().map_or("", |(_, what)| what);
        system_error(innermost, &text).unwrap_or_else(|| Error::new(Kind::Io, text))
    }

    /// Returns what identifies an object among all that are open: the number of its file and its
    /// token.
    pub fn object(&self, id: hid_t) -> Result<(u64, [u8; 16])> {
        let mut info = H5O_info2_t::default();
        // SAFETY: HDF5 checks the identifier; the result has a valid place.
        let status = unsafe { (self.hdf5.H5Oget_info3)(id, &mut info, H5O_INFO_BASIC) };
        self.check(status, "identify the object")?;
        Ok((info.fileno, info.token))
    }

    pub(crate) fn has_filter(&self, filter: u32) -> bool {
        // SAFETY: takes only a number.
        unsafe { (self.hdf5.H5Zfilter_avail)(filter.cast_signed()) > 0 }
    }

    /// Returns a text that HDF5 writes into a buffer. A call without a buffer returns its size.
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

    /// Takes ownership of a text that HDF5 has allocated.
    pub(crate) fn take_text(&self, text: *mut c_char, action: &str) -> Result<String> {
        if text.is_null() {
            return Err(self.failed(action));
        }
        // SAFETY: HDF5 returned a NUL-terminated text that the caller owns and that HDF5 frees.
        unsafe {
            let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.hdf5.H5free_memory)(text.cast());
            Ok(copy)
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: restores what `begin` found, still under the guarantee of its caller.
        unsafe { (self.hdf5.H5Eset_auto2)(H5E_DEFAULT, self.print, self.print_data) };
    }
}

/// A close function of HDF5.
pub type Close = unsafe extern "C" fn(hid_t) -> herr_t;

/// An identifier that is closed when dropped. Only a session creates it, and it never outlives the
/// session.
#[must_use]
pub struct Id {
    id: hid_t,
    close: Close,
}

impl Id {
    /// Returns the identifier, which stays open as long as this value.
    pub fn get(&self) -> hid_t {
        self.id
    }

    /// Returns the identifier and leaves it open: the receiver must close it.
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

/// Returns the error of a system call that failed below HDF5, if its innermost message describes
/// one: "file write failed: ..., filename = '/f.h5', ..., errno = 28, error message = '...', ...,
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

/// Largest number of entries read; HDF5's stacks have at most 32.
const DEEPEST: usize = 64;

unsafe extern "C" fn collect(_: c_uint, entry: *const H5E_error2_t, data: *mut c_void) -> herr_t {
    // SAFETY: `failed` passes a vector that nothing else uses during the walk.
    let stack = unsafe { &mut *data.cast::<Vec<(String, String)>>() };
    if stack.len() < DEEPEST && !entry.is_null() {
        // SAFETY: HDF5 passes a valid entry; its texts are NUL-terminated or null.
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
    // SAFETY: the caller guarantees it.
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
    fn words_without_an_errno_are_no_system_error() {
        assert!(system_error("inappropriate type", "HDF5 cannot read").is_none());
    }
}
