#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace simt {
namespace {

#ifdef __SANITIZE_ADDRESS__
const size_t STACK = 256 << 10; // frames have red zones
#else
const size_t STACK = 64 << 10;
#endif

} // namespace

void give_stack(Fiber& fiber, unsigned number) {
    // A page below the stack that nothing may touch, so that an overflow stops the program.
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void* memory =
        mmap(nullptr, STACK + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        fputs("simt: no memory for the stacks of a block\n", stderr);
        abort();
    }
    fiber.bottom = (char*)memory + page;
    fiber.size = STACK - number % 16 * 256;
}

// Takes AddressSanitizer's guards off the top of a stack.
static void unguard(Fiber& fiber, size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region((const char*)fiber.bottom + fiber.size - bytes, bytes);
#else
    (void)fiber, (void)bytes;
#endif
}

// More than those functions take that a fiber which is over has not returned from.
static const size_t FIRST_FRAMES = 4096;

void abandon(Fiber& fiber) { unguard(fiber, fiber.size); }

#ifdef SIMT_UCONTEXT

void prepare(Fiber& fiber, void (*entry)()) {
    unguard(fiber, FIRST_FRAMES);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = const_cast<void*>(fiber.bottom);
    fiber.context.uc_stack.ss_size = fiber.size;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

static void switch_stacks(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#else

// Pushes the registers that a call must preserve, leaves the stack's pointer in `*from`,
// takes the pointer `to`, and pops the registers of the fiber that left it.
extern "C" void simt_switch(void** from, void* to) asm("simt_switch");

#ifdef __x86_64__

asm(R"(
    .text
    .p2align 4
    .globl simt_switch
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

// Six registers, the address to return to, and one that the entry would return to: 64 bytes,
// which leave the stack aligned as after a call.
static const int SAVED = 8, RETURN = 6;

#else // __aarch64__

asm(R"(
    .text
    .p2align 4
    .globl simt_switch
simt_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");

static const int SAVED = 20, RETURN = 11;

#endif

void prepare(Fiber& fiber, void (*entry)()) {
    unguard(fiber, FIRST_FRAMES);
    void** pointer = (void**)((char*)fiber.bottom + fiber.size) - SAVED;
    for (int i = 0; i < SAVED; i++) pointer[i] = nullptr;
    pointer[RETURN] = (void*)entry;
    fiber.pointer = pointer;
}

static void switch_stacks(Fiber& from, Fiber& to) { simt_switch(&from.pointer, to.pointer); }

#endif

// AddressSanitizer is told of every change of stacks, on both sides of it.

void change(Fiber& from, Fiber& to, bool over) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(over ? nullptr : &from.fake, to.bottom, to.size);
#else
    (void)over;
#endif
    switch_stacks(from, to);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

void arrived(Fiber& host) {
#ifdef __SANITIZE_ADDRESS__
    const void* bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!host.bottom) host.bottom = bottom, host.size = size;
#else
    (void)host;
#endif
}

} // namespace simt
