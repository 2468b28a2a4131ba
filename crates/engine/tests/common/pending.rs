//! A read of a whole file that a test can keep from going on.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use penstock_engine::Recover;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::request::Request;

use super::{Extras, Memory, Place, Sandbox, options, pattern};

pub const SIZE: u64 = (1 << 20) + 99;
pub const WHOLE: [(u64, u64, u64); 1] = [(0, SIZE, 0)];
pub const SETTINGS: &str = "block=64KiB;threads=2;direct=no;io=threads";
/// Long enough that whatever can happen has happened.
pub const A_WHILE: Duration = Duration::from_millis(30);

/// Some tests break the GPU for the whole process, or stop streams, for which a driver may make all
/// others wait that free memory; the others share it.
pub static GPU: RwLock<()> = RwLock::new(());

pub fn sharing() -> RwLockReadGuard<'static, ()> {
    GPU.read().recover()
}

pub fn alone() -> RwLockWriteGuard<'static, ()> {
    GPU.write().recover()
}

/// Keeps a request from continuing: its system calls from the given one on wait until it is lifted.
#[derive(Clone, Default)]
pub struct Latch {
    lifted: Arc<(Mutex<bool>, Condvar)>,
    calls: Arc<AtomicU64>,
}

impl Latch {
    pub fn at_call(&self, first: u64) -> Box<Decide> {
        let latch = self.clone();
        Box::new(move |number, _| {
            latch.calls.fetch_add(1, SeqCst);
            if number >= first {
                latch.wait();
            }
            Fault::None
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, bool> {
        self.lifted.0.lock().recover()
    }

    pub fn wait(&self) {
        let mut lifted = self.lock();
        while !*lifted {
            lifted = self.lifted.1.wait(lifted).unwrap();
        }
    }

    pub fn lift(&self) {
        *self.lock() = true;
        self.lifted.1.notify_all();
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }
}

/// Lifts it also when the test fails, so that no worker is left behind.
pub struct Latched(pub Latch);

impl Drop for Latched {
    fn drop(&mut self) {
        self.0.lift();
    }
}

/// A read of a whole file.
pub struct Scene {
    pub sandbox: Sandbox,
    pub file: Arc<File>,
    pub content: Vec<u8>,
    // Freed last, when the latch has been lifted.
    pub memory: Memory,
}

impl Scene {
    pub fn new(place: Place) -> Scene {
        let sandbox = Sandbox::new();
        let content = pattern(SIZE as usize, 7);
        Scene {
            file: sandbox.file("scene.bin", &content),
            sandbox,
            content,
            memory: place.memory(SIZE as usize, 0),
        }
    }

    pub fn read(&self, text: &str, extras: Extras) -> Request {
        self.start(Operation::Read, text, extras)
    }

    pub fn start(&self, operation: Operation, text: &str, extras: Extras) -> Request {
        let set = options(text).or(options(SETTINGS));
        self.memory
            .start_with(&self.file, operation, &WHOLE, set, extras)
            .unwrap()
    }

    /// A read whose calls from this one on wait for the latch.
    pub fn latched(&self, first: u64, text: &str) -> (Request, Latched) {
        let latch = Latch::default();
        let extras = Extras {
            faults: Some(latch.at_call(first)),
            ..Extras::default()
        };
        (self.read(text, extras), Latched(latch))
    }

    pub fn assert_read(&self) {
        assert!(self.memory.bytes(SIZE as usize) == self.content);
    }
}

pub fn places() -> Vec<Place> {
    match super::has_gpu() {
        true => vec![Place::Host, Place::Pinned, Place::Device],
        false => vec![Place::Host],
    }
}

/// Sends a message when it is dropped.
pub struct Owner(Sender<()>);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

pub fn owner() -> (Option<Box<dyn Any + Send>>, Receiver<()>) {
    let (sender, receiver) = channel();
    (Some(Box::new(Owner(sender))), receiver)
}
