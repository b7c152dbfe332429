// Fibers: stacks of their own within one thread of the system, and the switch between them.
#pragma once
#include <stddef.h>

#if !defined(SIMT_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define SIMT_UCONTEXT
#endif
#ifdef SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace simt {

struct Fiber {
    // The bytes that the stack may use. The host's are not known until it is left.
    const void* bottom = nullptr;
    size_t size = 0;
    // AddressSanitizer's own stack of the fiber.
    void* fake = nullptr;
#ifdef SIMT_UCONTEXT
    ucontext_t context;
#else
    void* pointer = nullptr;
#endif
};

// Gives a fiber a stack. `number` is its place among many: stacks that all began at the same
// place of a page would fight for the same lines of the cache.
void give_stack(Fiber& fiber, unsigned number);

// Makes a fiber call `entry`, which never returns, when it is next switched to.
void prepare(Fiber& fiber, void (*entry)());

// Lets a fiber be prepared anew that is in the middle of something.
void abandon(Fiber& fiber);

// Goes on where `to` stopped. Where `from` is not to go on, it is `over`.
void change(Fiber& from, Fiber& to, bool over);

// What an entry calls first. `host` is the fiber from which the first of all was entered.
void arrived(Fiber& host);

} // namespace simt
