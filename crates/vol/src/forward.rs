//! Functions that only forward to the connector below.

/// Defines functions that only forward. The line
///
/// ```text
/// close close_attribute = H5VLattr_close, c"H5Aclose_async";
/// ```
///
/// takes the signature of `H5VLattr_close` from penstock-sys, and becomes
///
/// ```text
/// unsafe extern "C" fn close_attribute(attr: Obj, dxpl_id: hid_t, req: Req) -> herr_t {
///     unsafe {
///         close(attr, ApiCall::of(c"H5Aclose_async", req), |under| {
///             (under.calls.H5VLattr_close)(under.object, under.id, dxpl_id, req)
///         })
///     }
/// }
/// ```
///
/// The first word names a function such as `make`, `operate` or `close` of [`callback`](crate::callback). It gets
/// the object, the call of the application, and a closure that calls the connector below. A line has the name
/// of the application's call if the function has an argument `req`.
///
/// A function that carries out several operations may have a line such as
///
/// ```text
/// match specific = H5VLattr_specific {
///     H5VL_ATTR_ITER => visit c"H5Aiterate",
///     _ => operate c"H5Adelete",
/// };
/// ```
///
/// which chooses by the operation in the argument `args`. A function of two objects uses
/// [`operate_on_two`](crate::callback::operate_on_two).
macro_rules! forward {
    ($($how:ident $name:ident = $function:ident $({ $($operations:tt)* })? $(, $call:expr)?;)*) => {$(
        penstock_sys::connector_signature! {
            $function forward_one $how $name = $function, [$($($operations)*)? $($call)?]
        }
    )*};
}

/// Defines one function of [`forward`] from its line and its signature.
macro_rules! forward_one {
    (
        match $name:ident = $function:ident, [$($operation:pat => $how:ident $call:expr,)*]
        ($object:ident: $object_type:ty $(, $before:ident: $before_type:ty)*;
        $args:ident: $args_type:ty $(, $after:ident: $after_type:ty)*; $req:ident) -> $result:ty
    ) => {
        unsafe extern "C" fn $name(
            $object: $object_type,
            $($before: $before_type,)*
            $args: $args_type,
            $($after: $after_type,)*
            $req: Req
        ) -> $result {
            // SAFETY: the call passes HDF5's arguments on.
            unsafe {
                let call = |under: &crate::under::Under| {
                    (under.calls.$function)(
                        under.object, $($before,)* under.id, $args, $($after,)* $req
                    )
                };
                match (*$args).op_type {
                    $($operation => $how($object, api_call!($call, $req), call),)*
                }
            }
        }
    };
    (
        $how:ident $name:ident = $function:ident, [$call:expr]
        ($one:ident: Obj, $place:ident: Location, $other:ident: Obj, $other_place:ident: Location;
        $($after:ident: $after_type:ty),*; $req:ident) -> $result:ty
    ) => {
        unsafe extern "C" fn $name(
            $one: Obj,
            $place: Location,
            $other: Obj,
            $other_place: Location,
            $($after: $after_type,)*
            $req: Req
        ) -> $result {
            // SAFETY: the call passes HDF5's arguments on.
            unsafe {
                $how($one, $other, api_call!($call, $req), |under, $one, $other| {
                    (under.calls.$function)(
                        $one, $place, $other, $other_place, under.id, $($after,)* $req
                    )
                })
            }
        }
    };
    (
        $how:ident $name:ident = $function:ident, [$($call:expr)?]
        ($object:ident: $object_type:ty $(, $before:ident: $before_type:ty)*;
        $($after:ident: $after_type:ty),* $(; $req:ident)?) -> $result:ty
    ) => {
        unsafe extern "C" fn $name(
            $object: $object_type,
            $($before: $before_type,)*
            $($after: $after_type,)*
            $($req: Req)?
        ) -> $result {
            // SAFETY: the call passes HDF5's arguments on.
            unsafe {
                $how($object, api_call!($($call, $req)?), |under| {
                    (under.calls.$function)(
                        under.object, $($before,)* under.id, $($after,)* $($req)?
                    )
                })
            }
        }
    };
}

/// Makes the [`ApiCall`](crate::api_call::ApiCall) of a function.
macro_rules! api_call {
    () => {
        crate::api_call::ApiCall::NONE
    };
    ($call:expr, $req:ident) => {
        crate::api_call::ApiCall::of($call, $req)
    };
}
