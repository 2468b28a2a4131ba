/* What ThreadSanitizer cannot see of the standard library, told to it.
 *
 * The prebuilt std is not instrumented. Its generic and inlined parts are compiled, instrumented,
 * into whoever uses them, but not the slow paths named below: a thread that had to wait for a
 * mutex would look as if it had not taken it. scripts/sanitize finds the symbols of these
 * functions in the std at hand, has the linker send all calls of them here (--wrap), and proves by
 * tests/sanitize/ordered.rs that then nothing is missing.
 *
 * The wrappers pass on all integer registers, whatever the function takes. */
#include <stddef.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

typedef unsigned __int128 two_registers;
#define TAKEN void *a, void *b, void *c, void *d, void *e, void *f
#define PASSED a, b, c, d, e, f

#define GLUE2(x, y) x##y
#define GLUE(x, y) GLUE2(x, y)
#define REAL(name) GLUE(__real_, name)
#define WRAP(name) GLUE(__wrap_, name)

/* Mutex::lock_contended(&self) and the like: on return, the lock is taken. */
#define LOCKS(name)                    \
    two_registers REAL(name)(TAKEN);   \
    two_registers WRAP(name)(TAKEN)    \
    {                                  \
        two_registers result = REAL(name)(PASSED); \
        __tsan_acquire(a);             \
        return result;                 \
    }

/* Condvar::wait*(&self, &Mutex, ...): the mutex is given up and taken again. */
#define WAITS(name)                    \
    two_registers REAL(name)(TAKEN);   \
    two_registers WRAP(name)(TAKEN)    \
    {                                  \
        __tsan_release(b);             \
        two_registers result = REAL(name)(PASSED); \
        __tsan_acquire(b);             \
        return result;                 \
    }

/* An acquire fence comes after what this thread has last read. In Rust that is the count of an
 * Arc, whose last holder must see all that the others did; the sanitizer leaves fences out. */
enum { RELAXED = 0, RELEASE = 3 };

static __thread volatile void *last_count;

long __real___tsan_atomic64_fetch_sub(volatile long *count, long less, int order);
long __wrap___tsan_atomic64_fetch_sub(volatile long *count, long less, int order)
{
    last_count = count;
    return __real___tsan_atomic64_fetch_sub(count, less, order);
}

void __real___tsan_atomic_thread_fence(int order);
void __wrap___tsan_atomic_thread_fence(int order)
{
    __real___tsan_atomic_thread_fence(order);
    if (order != RELAXED && order != RELEASE && last_count)
        __tsan_acquire((void *)last_count);
}

#ifdef MUTEX_LOCK
LOCKS(MUTEX_LOCK)
#endif
#ifdef RWLOCK_READ
LOCKS(RWLOCK_READ)
#endif
#ifdef RWLOCK_WRITE
LOCKS(RWLOCK_WRITE)
#endif
#ifdef CONDVAR_WAIT
WAITS(CONDVAR_WAIT)
#endif
#ifdef CONDVAR_WAIT_TIMEOUT
WAITS(CONDVAR_WAIT_TIMEOUT)
#endif

#ifdef ONCE_CALL
/* Once::call(&self, bool, &mut dyn FnMut(&OnceState), ...): what the closure did is seen by all
 * who find the Once complete, so it must be released before that, at the end of the closure. */
enum { CALL_MUT = 4, ENTRIES = 5 }; /* of the vtable: drop, size, align, call_once, call_mut */

struct closure {
    void *once;
    void *data;
    void **vtable;
};

static two_registers call_and_release(struct closure *closure, void *state)
{
    two_registers (*call)(void *, void *) = (two_registers(*)(void *, void *))closure->vtable[CALL_MUT];
    two_registers result = call(closure->data, state);
    __tsan_release(closure->once);
    return result;
}

two_registers REAL(ONCE_CALL)(TAKEN);
two_registers WRAP(ONCE_CALL)(TAKEN)
{
    struct closure closure = {a, c, d};
    void *vtable[ENTRIES] = {NULL, (void *)sizeof closure, (void *)_Alignof(struct closure), NULL,
                             (void *)call_and_release};
    two_registers result = REAL(ONCE_CALL)(a, b, &closure, vtable, e, f);
    __tsan_acquire(a);
    return result;
}
#endif
