/* The scenario of the fake NVML: read from a file, reloaded when the file changes.
 *
 * One fact a line; `#` begins a comment. Whatever a GPU has no fact about is NOT_SUPPORTED.
 *
 *   driver 550.54.14            versions of driver, NVML (`nvml`) and CUDA (`cuda 12040`)
 *   init 9                      nvmlInit and every call return this code (9: driver not loaded)
 *   generation 2                the driver was reloaded: calls return `stale` until shutdown and init
 *   stale 999                   the code they return meanwhile (1 by default)
 *   hang nvmlDeviceGetName      this call blocks until the line is removed
 *   fail nvmlDeviceGetName 3    this call returns this code, on every GPU
 *   xid 7 0 79 [gi ci]          event number 7: XID 79 on GPU 0 (numbers only grow)
 *   process 4242 NAME           the name of a process
 *   gpu 0 ...                   a fact of a GPU; `gpu 0 mig 1 ...` of its second MIG instance:
 *     uuid|model|bus_id|serial|vbios|inforom_image|inforom_oem|inforom_ecc|inforom_power TEXT
 *     NAME VALUE                a number, see NUMBERS below
 *     lost                      every call returns GPU_IS_LOST
 *     fail SYMBOL CODE          as above, on this GPU
 *     compute|graphics|mps PID BYTES|none
 *     usage PID SM MEM ENC DEC  a utilization sample of a process, always as young as the call
 *     sample PID US SM MEM ENC DEC   the same, taken at this time (microseconds since 1970)
 *     busy_sample US PERCENT    a utilization sample of the device
 *     growing N                 the process list outgrows the next N buffers it is given
 *     field ID SCOPE TYPE VALUE a field value; TYPE is double, uint, ulong, ull, sll, int or ushort
 *     gpm ID VALUE              a GPM metric (`nan` is a value)
 */
#ifndef FAKE_NVML_SCENARIO_H
#define FAKE_NVML_SCENARIO_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25
};

#define NUMBERS(X) \
    X(minor) X(brand) X(temperature) X(power_mw) X(power_limit_mw) X(enforced_power_limit_mw) \
    X(gpu_percent) X(memory_percent) X(encoder_percent) X(decoder_percent) \
    X(sm_mhz) X(memory_mhz) X(video_mhz) X(max_sm_mhz) X(max_memory_mhz) \
    X(memory_total) X(memory_used) X(memory_free) X(memory_reserved) X(no_memory_v2) \
    X(clock_reasons) X(pstate) X(fan_percent) X(pcie_replays) X(pcie_generation) X(pcie_width) \
    X(pcie_tx_kb) X(pcie_rx_kb) X(energy_mj) X(licence_supported) X(licence_state) \
    X(mig_capable) X(mig_mode) X(placement) X(gi) X(ci) X(slices) X(ci_slices) X(video_engines) X(events) X(gpm_supported) X(p2p) \
    X(fabric_state) X(fabric_clique) X(fabric_health) X(fabric_summary) X(no_fabric_v3) X(no_gpm_totals)
#define TEXTS(X) \
    X(uuid) X(model) X(bus_id) X(serial) X(vbios) X(inforom_image) X(inforom_oem) X(inforom_ecc) X(inforom_power)
#define AS_ENUM(name) N_##name,
#define AS_TEXT(name) T_##name,
enum { NUMBERS(AS_ENUM) NUMBER_COUNT };
enum { TEXTS(AS_TEXT) TEXT_COUNT };

enum { COMPUTE, GRAPHICS, MPS, LISTS };
enum { MOST_GPUS = 32, MOST_INSTANCES = 8, MOST_FAILURES = 32, MOST_FIELDS = 96, MOST_GPM = 32 };

typedef struct { unsigned pid; unsigned long long memory; } Process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Usage;
typedef struct { unsigned long long at; unsigned percent; } BusySample;
typedef struct { unsigned id, scope, type; union { double d; unsigned u; unsigned long long ull; int i; } value; } Field;
typedef struct { unsigned id; double value; } Gpm;
typedef struct { char symbol[64]; int code; } Failure;
typedef struct { unsigned long long number; unsigned gpu, xid, gi, ci; } Xid;
typedef struct { unsigned pid; char name[128]; } Name;

#define GROWABLE(type) struct { type *items; unsigned count, capacity; }

typedef struct Gpu {
    bool exists, lost;
    struct Gpu *parent;
    bool has[NUMBER_COUNT];
    unsigned long long number[NUMBER_COUNT];
    char text[TEXT_COUNT][96];
    GROWABLE(Process) processes[LISTS];
    GROWABLE(Usage) usages;
    GROWABLE(BusySample) busy;
    Field fields[MOST_FIELDS];
    unsigned field_count;
    Gpm gpm[MOST_GPM];
    unsigned gpm_count;
    Failure failures[MOST_FAILURES];
    unsigned failure_count;
    unsigned growing;
} Gpu;

typedef struct {
    char driver[80], nvml[80];
    int cuda, init_code, stale_code;
    unsigned long long generation;
    unsigned gpu_count;
    Gpu gpus[MOST_GPUS];
    Gpu instances[MOST_GPUS][MOST_INSTANCES];
    Failure failures[MOST_FAILURES];
    unsigned failure_count;
    char hanging[64];
    GROWABLE(Xid) xids;
    GROWABLE(Name) names;
} Scenario;

extern Scenario scenario;
extern pthread_mutex_t scenario_lock;

void scenario_refresh(void);            /* caller holds the lock; checks the file at most every few milliseconds */
void scenario_use(const char *path);    /* caller holds the lock; reads this file now */
void scenario_wait(unsigned milliseconds); /* without the lock; until the scenario changes or the time is over */
unsigned long long now_microseconds(void);

#endif
