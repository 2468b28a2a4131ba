//! The connector's information in a file access property list: the connector below, its
//! configuration, and the settings of this one.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_sys::environment;
use penstock_sys::hdf5::connector::H5VL_info_class_t;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::calling_library::{CallingLibrary, Quiet};
use super::configuration::Configuration;
use super::connector_below::ConnectorBelow;
use super::settings::ConnectorSettings;
use penstock_hdf5::library::callback::{
    ErrorSite, FAIL, SUCCEED, c_text, error_site, run_callback,
};

pub(crate) const INFO: ErrorSite =
    error_site(c"penstock_async_info", "H5E_VOL_g", "H5E_BADVALUE_g");

/// What a file access property list holds. HDF5 has the address, and calls the functions of [`class`]
/// to copy and free the object.
pub(crate) enum ListInfo {
    Usable(ConnectorInfo),
    /// The text of `HDF5_VOL_CONNECTOR` cannot be used. HDF5 (up to 2.2.0) goes on without a
    /// connector that refuses this text. So this connector accepts it, and fails each call that opens
    /// a file: the program does not run without the connector that its user has asked for.
    Unusable {
        library: CallingLibrary,
        text: String,
        error: Error,
    },
}

/// The connector below, its configuration, and the settings of this connector.
pub(crate) struct ConnectorInfo {
    pub(crate) below: Arc<ConnectorBelow>,
    /// Configuration of the connector below, in that connector's format; null without one. This
    /// object owns it.
    pub(crate) under_info: *mut c_void,
    pub(crate) settings: Arc<ConnectorSettings>,
}

impl ConnectorInfo {
    /// Returns the information for a property list without any: the native connector is below.
    pub(crate) fn native(library: CallingLibrary) -> Result<ConnectorInfo> {
        ConnectorInfo::parse(library, "")
    }

    pub(crate) fn parse(library: CallingLibrary, text: &str) -> Result<ConnectorInfo> {
        let parts = Configuration::parse(text)?;
        // An error here leaves nothing to release.
        let settings = Arc::new(ConnectorSettings::parse(&parts.settings)?);
        let below = ConnectorBelow::find(library, parts.under_vol)?;
        let mut info = ConnectorInfo::above(below, ptr::null_mut(), settings);
        if !parts.under_info.is_empty() {
            let text = c_text(parts.under_info);
            // SAFETY: the identifier is open, the text is a C string, and `under_info` receives the answer.
            let status = unsafe {
                (library.calls.H5VLconnector_str_to_info)(
                    text.as_ptr(),
                    info.below.id,
                    &mut info.under_info,
                )
            };
            if status < 0 {
                return Err(Error::invalid(format!(
                    "the connector below does not accept option under_info={{{}}}",
                    parts.under_info
                )));
            }
        }
        Ok(info)
    }

    /// Takes ownership of `under_info`, which is null or made by the connector `below`.
    pub(crate) fn above(
        below: ConnectorBelow,
        under_info: *mut c_void,
        settings: Arc<ConnectorSettings>,
    ) -> ConnectorInfo {
        ConnectorInfo {
            below: Arc::new(below),
            under_info,
            settings,
        }
    }

    /// Reads the information of `fapl`, which uses this connector. Without any, the native
    /// connector is below.
    ///
    /// # Safety
    /// The thread is inside a call of `library`, and `fapl` is a file access property list of that library.
    pub(crate) unsafe fn of_access_list(
        library: CallingLibrary,
        fapl: hid_t,
    ) -> Result<ConnectorInfo> {
        let mut info = ptr::null_mut();
        // SAFETY: `info` receives the answer.
        let status = unsafe { (library.calls.H5Pget_vol_info)(fapl, &mut info) };
        if status < 0 {
            return Err(Error::invalid(
                "HDF5 cannot read the connector's information from the file access property list",
            ));
        }
        if info.is_null() {
            return ConnectorInfo::native(library);
        }
        // SAFETY: HDF5 has made a copy with `copy`, and transfers its ownership.
        match *unsafe { Box::from_raw(info.cast::<ListInfo>()) } {
            ListInfo::Usable(info) => Ok(info),
            ListInfo::Unusable { error, .. } => Err(error),
        }
    }

    /// Copies the information, with other settings. Returns `None` if the connector below cannot
    /// copy its configuration.
    pub(crate) fn with_settings(&self, settings: Arc<ConnectorSettings>) -> Option<ConnectorInfo> {
        let mut copied = ConnectorInfo {
            below: Arc::clone(&self.below),
            under_info: ptr::null_mut(),
            settings,
        };
        if self.under_info.is_null() {
            return Some(copied);
        }
        let calls = self.below.library.calls;
        // SAFETY: the identifier is open, and `copied.under_info` receives the copy.
        let status = unsafe {
            (calls.H5VLcopy_connector_info)(self.below.id, &mut copied.under_info, self.under_info)
        };
        (status >= 0).then_some(copied)
    }

    fn compare(&self, other: &ConnectorInfo) -> c_int {
        let order = self.below.compare(&other.below);
        if order != 0 {
            return order;
        }
        let mut order = 0;
        // SAFETY: the identifier is open, its connector has made both pieces of information, and `order`
        // receives the answer.
        unsafe {
            (self.below.library.calls.H5VLcmp_connector_info)(
                &mut order,
                self.below.id,
                self.under_info,
                other.under_info,
            );
        }
        match order {
            0 => self.settings.text.cmp(&other.settings.text) as c_int,
            order => order,
        }
    }

    /// Returns the text from which [`ConnectorInfo::parse`] makes equal information.
    fn text(&self) -> Result<String> {
        let library = self.below.library;
        let mut value = 0;
        let mut under: *mut c_char = ptr::null_mut();
        // SAFETY: the identifier is open, its connector has made the information, and the pointers are
        // valid for the answers.
        let is_described = unsafe {
            (library.calls.H5VLget_value)(self.below.id, &mut value) >= 0
                && (library.calls.H5VLconnector_info_to_str)(
                    self.under_info,
                    self.below.id,
                    &mut under,
                ) >= 0
        };
        if !is_described {
            return Err(Error::invalid(
                "the connector below does not describe itself",
            ));
        }
        let mut text = format!("under_vol={value};under_info={{");
        if !under.is_null() {
            // SAFETY: the connector below has made a C string, which this function has to free.
            unsafe {
                text.push_str(&CStr::from_ptr(under).to_string_lossy());
                (library.hdf5.H5free_memory)(under.cast());
            }
        }
        text.push('}');
        if !self.settings.text.is_empty() {
            text.push(';');
            text.push_str(&self.settings.text);
        }
        Ok(text)
    }
}

impl Drop for ConnectorInfo {
    fn drop(&mut self) {
        if !self.under_info.is_null() {
            let library = self.below.library;
            // SAFETY: the identifier is open, its connector has made the information, and nothing uses the
            // information later.
            library.keeping_errors(|| unsafe {
                (library.calls.H5VLfree_connector_info)(self.below.id, self.under_info)
            });
        }
    }
}

impl ListInfo {
    /// Parses a text that HDF5 passes.
    fn parse(library: CallingLibrary, text: &CStr) -> Result<ListInfo> {
        let text = String::from_utf8_lossy(without_stray_byte(text.to_bytes()));
        let parsed = match &text {
            Cow::Borrowed(text) => ConnectorInfo::parse(library, text),
            Cow::Owned(_) => Err(Error::invalid("the connector's configuration is not UTF-8")),
        };
        match parsed {
            Ok(info) => Ok(ListInfo::Usable(info)),
            Err(error) if is_of_environment(&text) => Ok(ListInfo::Unusable {
                library,
                text: text.into_owned(),
                error,
            }),
            Err(error) => Err(error),
        }
    }

    fn library(&self) -> CallingLibrary {
        match self {
            ListInfo::Usable(info) => info.below.library,
            ListInfo::Unusable { library, .. } => *library,
        }
    }

    fn copied(&self) -> Result<ListInfo> {
        match self {
            ListInfo::Usable(info) => {
                let copied = info.with_settings(Arc::clone(&info.settings));
                let why = "the connector below cannot copy its configuration";
                copied
                    .map(ListInfo::Usable)
                    .ok_or_else(|| Error::invalid(why))
            }
            ListInfo::Unusable {
                library,
                text,
                error,
            } => Ok(ListInfo::Unusable {
                library: *library,
                text: text.clone(),
                error: error.clone(),
            }),
        }
    }

    fn text(&self) -> Result<String> {
        match self {
            ListInfo::Usable(info) => info.text(),
            ListInfo::Unusable { text, .. } => Ok(text.clone()),
        }
    }

    fn compare(&self, other: &ListInfo) -> Result<c_int> {
        match (self, other) {
            (ListInfo::Usable(one), ListInfo::Usable(other)) => Ok(one.compare(other)),
            _ => Ok(self.text()?.cmp(&other.text()?) as c_int),
        }
    }
}

/// Returns whether a text is the one in `HDF5_VOL_CONNECTOR`.
fn is_of_environment(text: &str) -> bool {
    let variable = environment::setting("HDF5_VOL_CONNECTOR").unwrap_or_default();
    is_text_of(&variable.to_string_lossy(), text)
}

/// Returns whether `variable` selects a connector with this text, directly or below another one.
fn is_text_of(variable: &str, text: &str) -> bool {
    let whole = variable.trim().split_once(char::is_whitespace);
    let first =
        |(_, rest): (_, &str)| rest.trim().lines().next().map(str::trim) == Some(text.trim());
    let is_whole = whole.is_some_and(first);
    let is_balanced = text.matches('{').count() == text.matches('}').count();
    is_whole || (is_balanced && variable.contains(&format!("{{{text}}}")))
}

/// # Safety
/// `info` was made by this module and is not freed.
unsafe fn of<'a>(info: *const c_void) -> &'a ListInfo {
    // SAFETY: the caller guarantees this.
    unsafe { &*info.cast::<ListInfo>() }
}

unsafe extern "C" fn copy(info: *const c_void) -> *mut c_void {
    // SAFETY: HDF5 passes information of this connector.
    let info = unsafe { of(info) };
    let body = || Ok(Box::into_raw(Box::new(info.copied()?)).cast());
    run_callback(info.library().hdf5, INFO, body).unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn cmp(
    cmp_value: *mut c_int,
    info1: *const c_void,
    info2: *const c_void,
) -> herr_t {
    // SAFETY: HDF5 passes information of this connector, and a pointer for the answer.
    unsafe {
        let (one, other) = (of(info1), of(info2));
        let order = run_callback(one.library().hdf5, INFO, || one.compare(other));
        order.map_or(FAIL, |order| {
            *cmp_value = order;
            SUCCEED
        })
    }
}

unsafe extern "C" fn free(info: *mut c_void) -> herr_t {
    // SAFETY: HDF5 transfers the ownership of information of this connector.
    let info = unsafe { Box::from_raw(info.cast::<ListInfo>()) };
    let hdf5 = info.library().hdf5;
    run_callback(hdf5, INFO, || {
        drop(info);
        Ok(SUCCEED)
    })
    .unwrap_or(FAIL)
}

unsafe extern "C" fn to_str(info: *const c_void, str: *mut *mut c_char) -> herr_t {
    // SAFETY: HDF5 passes information of this connector.
    let info = unsafe { of(info) };
    let library = info.library();
    let body = || {
        let text = c_text(&info.text()?);
        let text = text.as_bytes_with_nul();
        // SAFETY: the memory is as large as the text. HDF5 passes a pointer for its address, and frees it.
        unsafe {
            let memory = (library.calls.H5allocate_memory)(text.len(), false).cast::<u8>();
            if memory.is_null() {
                return Err(Error::invalid(
                    "no memory for the text of the connector's configuration",
                ));
            }
            memory.copy_from_nonoverlapping(text.as_ptr(), text.len());
            *str = memory.cast();
        }
        Ok(SUCCEED)
    };
    run_callback(library.hdf5, INFO, body).unwrap_or(FAIL)
}

/// Removes a byte after the last brace. HDF5's connector "pass_through", and connectors derived
/// from it, pass the text between their braces with one arbitrary byte too many.
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
    let Some(library) = CallingLibrary::of(SLOT) else {
        return FAIL;
    };
    let body = || {
        // HDF5 would also print the errors of the calls that find the connector below.
        let _quiet = Quiet::begin(library);
        // SAFETY: HDF5 passes a C string.
        let parsed = ListInfo::parse(library, unsafe { CStr::from_ptr(str) })?;
        // SAFETY: HDF5 passes a pointer for the answer.
        unsafe { *info = Box::into_raw(Box::new(parsed)).cast() };
        Ok(SUCCEED)
    };
    run_callback(library.hdf5, INFO, body).unwrap_or(FAIL)
}

pub(crate) const fn class<const SLOT: usize>() -> H5VL_info_class_t {
    H5VL_info_class_t {
        size: size_of::<ListInfo>(),
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
    fn the_text_of_the_variable_is_recognised() {
        let alone = "penstock_async under_vol=0;under_info={}";
        let below = "other under_vol=27022;under_info={under_vol=0;under_info={};copy=maybe}\n";
        for (variable, text, expected) in [
            (alone, "under_vol=0;under_info={}", true),
            (" penstock_async\t a=b \nmore", "a=b", true),
            (below, "under_vol=0;under_info={};copy=maybe", true),
            (below, "under_vol=0;under_info={", false),
            (alone, "under_vol=0", false),
            ("penstock_async", "a=b", false),
            ("", "a=b", false),
        ] {
            assert_eq!(is_text_of(variable, text), expected, "{variable}, {text}");
        }
    }

    #[test]
    fn a_byte_after_the_last_brace_is_removed() {
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
