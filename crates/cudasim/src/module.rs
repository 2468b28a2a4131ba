//! Modules: PTX whose kernels the stand-in has as C++.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::RwLock;

use crate::device::Context;
use crate::kernel::Kernel;
use crate::status::{INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, NOT_FOUND, Result};
use crate::{config, failure, handle};

#[derive(Clone, Copy)]
pub struct Function {
    pub kernel: Kernel,
    module: usize,
}

struct Module {
    context: &'static Context,
    /// The handles of its functions by name.
    functions: BTreeMap<String, usize>,
}

struct Loaded {
    modules: BTreeMap<usize, Module>,
    functions: BTreeMap<usize, Function>,
}

static LOADED: RwLock<Loaded> = RwLock::new(Loaded {
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
});

/// Loads PTX. The stand-in must have each of its kernels as C++, with a parameter of the same size.
pub fn load(context: &'static Context, ptx: &str) -> Result<*mut c_void> {
    failure::check(failure::Kind::Module)?;
    if !ptx.contains(".version") || !ptx.contains(".target") {
        return Err(INVALID_IMAGE);
    }
    let _blocked = context.block();
    let module = handle::new_handle();
    let mut functions = BTreeMap::new();
    let mut by_handle = Vec::new();
    for entry in entries(ptx) {
        let (name, parameters) = entry.ok_or(INVALID_PTX)?;
        let kernel = Kernel::named(name).ok_or_else(|| {
            config::log(format_args!("kernel {name} is not compiled as C++"));
            INVALID_PTX
        })?;
        if parameters != [kernel.parameter_bytes()] {
            config::log(format_args!(
                "kernel {name} has parameters of {parameters:?} bytes in PTX, but one of {} in C++",
                kernel.parameter_bytes()
            ));
            return Err(INVALID_PTX);
        }
        let handle = handle::new_handle();
        functions.insert(name.to_owned(), handle);
        by_handle.push((handle, Function { kernel, module }));
    }
    let mut loaded = LOADED.write().unwrap();
    loaded.modules.insert(module, Module { context, functions });
    loaded.functions.extend(by_handle);
    Ok(module as *mut c_void)
}

pub fn unload(module: *mut c_void) -> Result {
    let removed = {
        let mut loaded = LOADED.write().unwrap();
        loaded
            .functions
            .retain(|_, function| function.module != module as usize);
        loaded.modules.remove(&(module as usize))
    };
    removed.ok_or(INVALID_HANDLE)?.context.pass();
    Ok(())
}

/// Unloads the modules of a context.
pub fn remove_all(context: &Context) {
    let mut loaded = LOADED.write().unwrap();
    let Loaded { modules, functions } = &mut *loaded;
    modules.retain(|_, module| !std::ptr::eq(module.context, context));
    functions.retain(|_, function| modules.contains_key(&function.module));
}

/// The handle of a function.
pub fn function(module: *mut c_void, name: &str) -> Result<*mut c_void> {
    let loaded = LOADED.read().unwrap();
    let module = loaded
        .modules
        .get(&(module as usize))
        .ok_or(INVALID_HANDLE)?;
    let handle = module.functions.get(name).ok_or(NOT_FOUND)?;
    Ok(*handle as *mut c_void)
}

/// The function of a handle, if its module is loaded in this context.
pub fn resolve(context: &Context, function: *mut c_void) -> Result<Function> {
    let loaded = LOADED.read().unwrap();
    let found = loaded.functions.get(&(function as usize));
    found
        .filter(|found| {
            let module = loaded.modules.get(&found.module);
            module.is_some_and(|module| std::ptr::eq(module.context, context))
        })
        .copied()
        .ok_or(INVALID_HANDLE)
}

/// Modules loaded and not unloaded.
pub fn count() -> usize {
    LOADED.read().unwrap().modules.len()
}

/// The name and parameter sizes of each kernel; `None` for one that cannot be parsed.
fn entries(ptx: &str) -> impl Iterator<Item = Option<(&str, Vec<usize>)>> {
    ptx.split(".entry").skip(1).map(|entry| {
        let (name, rest) = entry.split_once('(')?;
        let (parameters, _) = rest.split_once(')')?;
        let sizes = parameters.split(',').map(parameter_bytes);
        Some((name.trim(), sizes.collect::<Option<_>>()?))
    })
}

/// The size of a parameter like `.param .u64 name` or `.param .align 8 .b8 name[56]`.
fn parameter_bytes(declaration: &str) -> Option<usize> {
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let (name, before) = words.split_last()?;
    let bits: usize = before.last()?.get(2..)?.parse().ok()?;
    let count = match name.split_once('[') {
        Some((_, rest)) => rest.strip_suffix(']')?.parse().ok()?,
        None => 1,
    };
    Some(bits / 8 * count)
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn the_kernels_of_ptx_are_found_with_their_parameter_sizes() {
        let ptx = ".version 8.0\n.visible .entry one(\n\t.param .align 8 .b8 one_param_0[56]\n)\n{ret;}\n\
            .visible .entry two(\n\t.param .u64 two_param_0,\n\t.param .f32 two_param_1\n)\n{ret;}";
        let found: Vec<_> = entries(ptx).collect();
        assert_eq!(found, [Some(("one", vec![56])), Some(("two", vec![8, 4]))]);
    }

    #[test]
    fn a_truncated_kernel_is_not_parsed() {
        assert_eq!(entries(".entry one(\n.param .u64").next(), Some(None));
    }
}
