/* Start of every fake call: take the lock, refresh the scenario, fail if the scenario requires it. */
#ifndef FAKE_NVML_CALL_H
#define FAKE_NVML_CALL_H

#include "scenario.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct { int code; } Guard;

typedef struct {
    unsigned init_count, samples, event_sets;
    unsigned long long init_generation, delivered_xid, calls;
} OpenHandles;

extern OpenHandles open_handles; /* what callers hold open; guarded by scenario_lock */

Guard enter(const char *symbol, const Gpu *gpu);
void leave(Guard *guard);
void wait_while_hanging(const char *symbol);
int library_state(void);
int gpu_state(const Gpu *gpu, const char *symbol);
int give_text(char *out, unsigned capacity, const char *text);
int give(const Gpu *gpu, int number, unsigned *out);

#define ENTER(gpu) \
    Guard guard __attribute__((cleanup(leave))) = enter(__func__, gpu); \
    if (guard.code) return guard.code

#endif
