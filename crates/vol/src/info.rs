//! What a file access property list says of the connector: which one lies below, what that is told,
//! and the settings.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::H5VL_info_class_t;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::background::Policy;
use super::host::{Below, Host};
use super::settings::Settings;
use super::text::Parts;
use super::wrapped::Container;
use penstock_hdf5::library::callback::{FAIL, SUCCEED, What, c_text, caught, what};

pub const INFO: What = what(c"penstock_async_info", "H5E_VOL_g", "H5E_BADVALUE_g");

/// HDF5 holds it by its address, and copies and frees it by the functions below.
pub struct Info {
    pub below: Arc<Below>,
    /// What the connector below is told; null if nothing. It is that connector's, and owned.
    under_info: *mut c_void,
    pub settings: Arc<Settings>,
}

impl Info {
    /// Nothing is said: the native connector lies below.
    pub fn native(host: Host) -> Result<Info> {
        Info::parse(host, "")
    }

    pub fn parse(host: Host, text: &str) -> Result<Info> {
        let parts = Parts::of(text)?;
        // Before anything is owned.
        let settings = Arc::new(Settings::parse(&parts.settings)?);
        let below = Below::find(host, parts.under_vol)?;
        let mut info = Info::over(below, ptr::null_mut(), settings);
        if !parts.under_info.is_empty() {
            let text = c_text(parts.under_info);
            // SAFETY: the connector is held, the text is a C string, and there is a place for the
            // answer.
            let status = unsafe {
                (host.calls.H5VLconnector_str_to_info)(
                    text.as_ptr(),
                    info.below.id,
                    &mut info.under_info,
                )
            };
            if status < 0 {
                return Err(Error::invalid(format!(
                    "the connector below does not take option under_info={{{}}}",
                    parts.under_info
                )));
            }
        }
        Ok(info)
    }

    /// Takes over `under_info`, which is null or belongs to the connector `below`.
    pub fn over(below: Below, under_info: *mut c_void, settings: Arc<Settings>) -> Info {
        Info {
            below: Arc::new(below),
            under_info,
            settings,
        }
    }

    /// What `fapl`, which uses this connector, says; without that, the native one lies below.
    ///
    /// # Safety
    /// The thread is inside a call of `host`, of whose HDF5 `fapl` is a file access property list.
    pub unsafe fn of_access_list(host: Host, fapl: hid_t) -> Result<Info> {
        let mut info = ptr::null_mut();
        // SAFETY: `info` is a place for the answer.
        let status = unsafe { (host.calls.H5Pget_vol_info)(fapl, &mut info) };
        if status < 0 {
            return Err(Error::invalid(
                "HDF5 does not tell which connector lies below",
            ));
        }
        match info.is_null() {
            true => Info::native(host),
            // SAFETY: HDF5 has made a copy by `copy`, and gives it up.
            false => Ok(*unsafe { Box::from_raw(info.cast::<Info>()) }),
        }
    }

    pub fn under_info(&self) -> *const c_void {
        self.under_info
    }

    /// For the objects of a file that is opened with this, by one process or by several together.
    pub fn container(&self, is_parallel: bool) -> Result<Arc<Container>> {
        Ok(Arc::new(Container {
            below: Arc::clone(&self.below),
            policy: Policy::of(&self.settings)?,
            is_native: OnceLock::new(),
            is_parallel,
            identity: OnceLock::new(),
            has_readers: AtomicBool::new(false),
            opened: Mutex::default(),
            file: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// With other settings, or none if the connector below cannot copy what it is told.
    pub fn with_settings(&self, settings: Arc<Settings>) -> Option<Info> {
        let mut copied = Info {
            below: Arc::clone(&self.below),
            under_info: ptr::null_mut(),
            settings,
        };
        if self.under_info.is_null() {
            return Some(copied);
        }
        let calls = self.below.host.calls;
        // SAFETY: the connector is held, and its information is copied into a place for it.
        let status = unsafe {
            (calls.H5VLcopy_connector_info)(self.below.id, &mut copied.under_info, self.under_info)
        };
        (status >= 0).then_some(copied)
    }

    fn compare(&self, other: &Info) -> c_int {
        let order = self.below.compare(&other.below);
        if order != 0 {
            return order;
        }
        let mut order = 0;
        // SAFETY: the connector is held, both pieces of information are its own, and `order` is a
        // place for the answer.
        unsafe {
            (self.below.host.calls.H5VLcmp_connector_info)(
                &mut order,
                self.below.id,
                self.under_info,
                other.under_info,
            );
        }
        match order {
            0 => self.settings.text().cmp(other.settings.text()) as c_int,
            order => order,
        }
    }

    /// What [`Info::parse`] makes the same of.
    fn text(&self) -> Result<String> {
        let host = self.below.host;
        let mut value = 0;
        let mut under: *mut c_char = ptr::null_mut();
        // SAFETY: the connector is held, the information is its own, and there are places for the
        // answers.
        let told = unsafe {
            (host.calls.H5VLget_value)(self.below.id, &mut value) >= 0
                && (host.calls.H5VLconnector_info_to_str)(
                    self.under_info,
                    self.below.id,
                    &mut under,
                ) >= 0
        };
        if !told {
            return Err(Error::invalid(
                "the connector below does not describe itself",
            ));
        }
        let mut text = format!("under_vol={value};under_info={{");
        if !under.is_null() {
            // SAFETY: the connector below has made a C string, which is ours to free.
            unsafe {
                text.push_str(&CStr::from_ptr(under).to_string_lossy());
                (host.hdf5.H5free_memory)(under.cast());
            }
        }
        text.push('}');
        if !self.settings.text().is_empty() {
            text.push(';');
            text.push_str(self.settings.text());
        }
        Ok(text)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        if !self.under_info.is_null() {
            let host = self.below.host;
            // SAFETY: the connector is held, and the information is its own and used no more.
            host.keeping_errors(|| unsafe {
                (host.calls.H5VLfree_connector_info)(self.below.id, self.under_info)
            });
        }
    }
}

/// # Safety
/// `info` was made here and is not freed yet.
unsafe fn of<'a>(info: *const c_void) -> &'a Info {
    // SAFETY: passed on.
    unsafe { &*info.cast::<Info>() }
}

unsafe extern "C" fn copy(info: *const c_void) -> *mut c_void {
    // SAFETY: HDF5 gives information of this connector.
    let info = unsafe { of(info) };
    let body = || {
        let copied = info.with_settings(Arc::clone(&info.settings));
        let copied =
            copied.ok_or_else(|| Error::invalid("the connector below has made no copy"))?;
        Ok(Box::into_raw(Box::new(copied)).cast())
    };
    caught(info.below.host.hdf5, INFO, body).unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn cmp(
    cmp_value: *mut c_int,
    info1: *const c_void,
    info2: *const c_void,
) -> herr_t {
    // SAFETY: HDF5 gives information of this connector, and a place for the answer.
    unsafe {
        let (one, other) = (of(info1), of(info2));
        let order = caught(one.below.host.hdf5, INFO, || Ok(one.compare(other)));
        order.map_or(FAIL, |order| {
            *cmp_value = order;
            SUCCEED
        })
    }
}

unsafe extern "C" fn free(info: *mut c_void) -> herr_t {
    // SAFETY: HDF5 gives up information of this connector.
    let info = unsafe { Box::from_raw(info.cast::<Info>()) };
    let hdf5 = info.below.host.hdf5;
    caught(hdf5, INFO, || {
        drop(info);
        Ok(SUCCEED)
    })
    .unwrap_or(FAIL)
}

unsafe extern "C" fn to_str(info: *const c_void, str: *mut *mut c_char) -> herr_t {
    // SAFETY: HDF5 gives information of this connector.
    let info = unsafe { of(info) };
    let host = info.below.host;
    let body = || {
        let text = c_text(&info.text()?);
        let text = text.as_bytes_with_nul();
        // SAFETY: HDF5 frees the memory, which is as large as the text; `str` is a place for it.
        unsafe {
            let memory = (host.calls.H5allocate_memory)(text.len(), false).cast::<u8>();
            if memory.is_null() {
                return Err(Error::invalid("there is no memory for the text"));
            }
            memory.copy_from_nonoverlapping(text.as_ptr(), text.len());
            *str = memory.cast();
        }
        Ok(SUCCEED)
    };
    caught(host.hdf5, INFO, body).unwrap_or(FAIL)
}

/// The connector "pass_through" of HDF5, and those that were made after it, hand down what stands in
/// their braces with one byte more, whichever it happens to be.
fn without_stray_byte(text: &[u8]) -> &[u8] {
    match text {
        [meant @ .., last] if *last != b'}' && meant.last() == Some(&b'}') => meant,
        _ => text,
    }
}

unsafe extern "C" fn from_str<const SLOT: usize>(
    str: *const c_char,
    info: *mut *mut c_void,
) -> herr_t {
    let Some(host) = Host::of(SLOT) else {
        return FAIL;
    };
    let body = || {
        // SAFETY: HDF5 gives a C string.
        let text = without_stray_byte(unsafe { CStr::from_ptr(str) }.to_bytes());
        let text = std::str::from_utf8(text)
            .map_err(|_| Error::invalid("the options are not a text in UTF-8"))?;
        let parsed = Box::new(Info::parse(host, text)?);
        // SAFETY: HDF5 gives a place for the answer.
        unsafe { *info = Box::into_raw(parsed).cast() };
        Ok(SUCCEED)
    };
    caught(host.hdf5, INFO, body).unwrap_or(FAIL)
}

pub(super) const fn class<const SLOT: usize>() -> H5VL_info_class_t {
    H5VL_info_class_t {
        size: size_of::<Info>(),
        copy: Some(copy),
        cmp: Some(cmp),
        free: Some(free),
        to_str: Some(to_str),
        from_str: Some(from_str::<SLOT>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_behind_the_last_brace_is_nobodys() {
        for (text, meant) in [
            (&b"under_info={}\xff"[..], &b"under_info={}"[..]),
            (b"under_info={};", b"under_info={}"),
            (b"under_info={}", b"under_info={}"),
            (b"under_info={under_info={}}", b"under_info={under_info={}}"),
            (b"under_info={};threads=4", b"under_info={};threads=4"),
            (b"", b""),
        ] {
            assert_eq!(without_stray_byte(text), meant);
        }
    }
}
