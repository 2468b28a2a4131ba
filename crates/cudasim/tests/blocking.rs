//! Which calls wait for a context, and which calls they block, with `CUDASIM_BLOCKING=1`.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::{MutexGuard, Once, mpsc};
use std::time::Duration;

const NOT_READY: i32 = 600;
const PTX: &std::ffi::CStr = c".version 8.0\n.target sm_70\n.address_size 64\n";
/// The number of streams of a context whose creation does not wait.
const STREAMS: usize = 35;

/// Makes the primary context of device 0 current in the blocking mode.
fn start() -> (MutexGuard<'static, ()>, *mut c_void) {
    static SET: Once = Once::new();
    let guard = alone();
    // SAFETY: all threads of this process read the environment through the standard library.
    SET.call_once(|| unsafe { std::env::set_var("CUDASIM_BLOCKING", "1") });
    (guard, context())
}

/// A stream of the current context that is busy until this is dropped.
struct Busy {
    stream: *mut c_void,
    gate: Gate,
}

impl Busy {
    fn new() -> Busy {
        let stream = stream(NON_BLOCKING);
        let gate = Gate::close(stream);
        Busy { stream, gate }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.gate.open();
        // SAFETY: nothing else destroys the stream.
        unsafe {
            cuStreamSynchronize(self.stream);
            cuStreamDestroy_v2(self.stream);
        }
    }
}

/// Calls of the driver on a thread of its own.
struct Call(mpsc::Receiver<()>);

impl Call {
    /// Runs `body` with `context` as the current one.
    fn begin(context: *mut c_void, body: impl FnOnce() + Send + 'static) -> Call {
        let (sender, receiver) = mpsc::channel();
        let context = context as usize;
        std::thread::spawn(move || {
            done!(cuCtxSetCurrent(context as *mut c_void));
            body();
            let _ = sender.send(());
        });
        Call(receiver)
    }

    /// Whether it is still in progress after a time that is long enough for calls that do not wait.
    fn waits(&self) -> bool {
        let result = self.0.recv_timeout(Duration::from_millis(30));
        result == Err(mpsc::RecvTimeoutError::Timeout)
    }

    /// Fails the test unless it ends, and has succeeded.
    fn end(&self) {
        let result = self.0.recv_timeout(Duration::from_secs(10));
        result.expect("the calls succeed in time");
    }
}

fn load_module() {
    let mut module = null_mut();
    done!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
}

/// Fails the test unless `body` waits for a stream of the primary context, and blocks the context's
/// other calls meanwhile.
fn blocks(primary: *mut c_void, body: impl FnOnce() + Send + 'static) {
    let busy = Busy::new();
    let waiting = Call::begin(primary, body);
    assert!(waiting.waits());
    let blocked = Call::begin(primary, || _ = device_memory(64));
    assert!(blocked.waits());
    expect!(NOT_READY, cuStreamQuery(busy.stream));
    drop(busy);
    waiting.end();
    blocked.end();
}

#[test]
fn loading_a_module_blocks_the_context() {
    let (_alone, primary) = start();
    blocks(primary, load_module);
}

#[test]
fn freeing_device_memory_blocks_the_context() {
    let (_alone, primary) = start();
    let address = device_memory(64);
    blocks(primary, move || done!(cuMemFree_v2(address)));
}

#[test]
fn freeing_pinned_memory_blocks_the_context() {
    let (_alone, primary) = start();
    let address = pinned(64).as_mut_ptr() as usize;
    blocks(primary, move || done!(cuMemFreeHost(address as *mut _)));
}

#[test]
fn unregistering_memory_blocks_the_context() {
    let (_alone, primary) = start();
    let mut bytes = vec![0u8; 64];
    let address = bytes.as_mut_ptr() as usize;
    done!(cuMemHostRegister_v2(address as *mut _, 64, 0));
    blocks(primary, move || {
        done!(cuMemHostUnregister(address as *mut _))
    });
}

#[test]
fn creating_the_36th_stream_waits() {
    let (_alone, _) = start();
    let created = created_context();
    let busy = Busy::new();
    for _ in 1..STREAMS {
        stream(NON_BLOCKING);
    }
    let waiting = Call::begin(created, || _ = stream(NON_BLOCKING));
    assert!(waiting.waits());
    drop(busy);
    waiting.end();
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn work_for_a_blocked_context_waits() {
    let (_alone, primary) = start();
    let (idle, event) = (stream(NON_BLOCKING) as usize, event() as usize);
    let (device, slot) = (device_memory(64), pinned(64).as_mut_ptr() as usize);
    let busy = Busy::new();
    let waiting = Call::begin(primary, load_module);
    assert!(waiting.waits());
    let stream = move || idle as *mut c_void;
    let bodies: [Box<dyn FnOnce() + Send>; 4] = [
        Box::new(move || {
            let source = slot as *const c_void;
            done!(cuMemcpyHtoDAsync_v2(device, source, 64, stream()));
        }),
        Box::new(move || done!(cuMemsetD8Async(device, 1, 64, stream()))),
        Box::new(move || done!(cuEventRecord(event as *mut _, stream()))),
        Box::new(move || done!(cuStreamWaitEvent(stream(), event as *mut _, 0))),
    ];
    let blocked = bodies.map(|body| Call::begin(primary, body));
    assert!(blocked.iter().all(Call::waits));
    drop(busy);
    waiting.end();
    blocked.iter().for_each(Call::end);
}

#[test]
fn work_from_another_context_waits_for_a_blocked_one() {
    let (_alone, primary) = start();
    let (idle, device) = (stream(NON_BLOCKING) as usize, device_memory(64));
    let created = created_context();
    pop();
    let busy = Busy::new();
    let waiting = Call::begin(primary, load_module);
    assert!(waiting.waits());
    let blocked = Call::begin(created, move || {
        done!(cuMemsetD8Async(device, 1, 64, idle as *mut _))
    });
    assert!(blocked.waits());
    drop(busy);
    waiting.end();
    blocked.end();
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn queries_are_not_blocked() {
    let (_alone, primary) = start();
    let (event, device) = (event(), device_memory(64));
    let busy = Busy::new();
    done!(cuEventRecord(event, busy.stream));
    let waiting = Call::begin(primary, load_module);
    assert!(waiting.waits());
    expect!(NOT_READY, cuStreamQuery(busy.stream));
    expect!(NOT_READY, cuEventQuery(event));
    let (mut base, mut size, mut kind) = (0, 0, 0u32);
    done!(cuMemGetAddressRange_v2(&mut base, &mut size, device));
    done!(cuPointerGetAttribute((&raw mut kind).cast(), 2, device));
    assert!(waiting.waits());
    drop(busy);
    waiting.end();
}

#[test]
fn calls_of_another_context_neither_wait_nor_are_blocked() {
    let (_alone, primary) = start();
    let (event, device) = (event() as usize, device_memory(64));
    let busy = Busy::new();
    done!(cuEventRecord(event as *mut _, busy.stream));
    let waiting = Call::begin(primary, load_module);
    assert!(waiting.waits());
    let created = created_context();
    pop();
    let others = Call::begin(created, move || {
        let (own, host) = (device_memory(64), pinned(64).as_mut_ptr());
        let (mut bytes, stream) = (vec![0u8; 64], stream(NON_BLOCKING));
        load_module();
        done!(cuMemsetD8Async(device, 6, 64, stream));
        done!(cuMemcpyDtoHAsync_v2(host.cast(), device, 64, stream));
        done!(cuStreamSynchronize(stream));
        done!(cuCtxSynchronize());
        done!(cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0));
        done!(cuMemHostUnregister(bytes.as_mut_ptr().cast()));
        done!(cuMemFreeHost(host.cast()));
        done!(cuMemFree_v2(own));
        for _ in 0..STREAMS {
            self::stream(NON_BLOCKING);
        }
        done!(cuStreamWaitEvent(stream, event as *mut _, 0));
        expect!(NOT_READY, cuStreamQuery(stream));
    });
    others.end();
    assert!(waiting.waits());
    drop(busy);
    waiting.end();
    assert_eq!(peek(device, 64), [6; 64]);
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn freeing_blocks_only_the_context_of_the_memory() {
    let (_alone, primary) = start();
    let first = device_memory(64);
    let created = created_context();
    let second = device_memory(64);
    pop();
    let busy = Busy::new();
    Call::begin(primary, move || done!(cuMemFree_v2(second))).end();
    let waiting = Call::begin(created, move || done!(cuMemFree_v2(first)));
    assert!(waiting.waits());
    let blocked = Call::begin(primary, || _ = device_memory(64));
    assert!(blocked.waits());
    Call::begin(created, || _ = device_memory(64)).end();
    drop(busy);
    waiting.end();
    blocked.end();
    done!(cuCtxDestroy_v2(created));
}
