/* A fake libnvidia-ml.so.1: the NVML calls used for monitoring, with values from a scenario (scenario.h).
 *
 * Struct layouts and symbol names are those of NVIDIA's own Python binding. The scenario is named by
 * FAKE_NVML_SCENARIO when the library is first initialised, or at any time by fake_nvml_scenario().
 * With FAKE_OLD_DRIVER defined, the symbols a driver of 2021 lacked are missing.
 */
#include "call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

OpenHandles open_handles;

void leave(Guard *guard) {
    (void)guard;
    pthread_mutex_unlock(&scenario_lock);
}

static int failure_of(const Failure *failures, unsigned count, const char *symbol) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(failures[i].symbol, symbol) == 0) return failures[i].code;
    return SUCCESS;
}

void wait_while_hanging(const char *symbol) {
    while (*scenario.hanging && strcmp(scenario.hanging, symbol) == 0) {
        pthread_mutex_unlock(&scenario_lock);
        usleep(2000);
        pthread_mutex_lock(&scenario_lock);
        scenario_refresh();
    }
}

int library_state(void) {
    if (scenario.init_code) return scenario.init_code;
    if (!open_handles.init_count) return UNINITIALIZED;
    return open_handles.init_generation == scenario.generation ? SUCCESS : scenario.stale_code;
}

int gpu_state(const Gpu *gpu, const char *symbol) {
    if (!gpu->exists) return INVALID_ARGUMENT;
    if (gpu->lost || (gpu->parent && gpu->parent->lost)) return GPU_IS_LOST;
    return failure_of(gpu->failures, gpu->failure_count, symbol);
}

Guard enter(const char *symbol, const Gpu *gpu) {
    pthread_mutex_lock(&scenario_lock);
    open_handles.calls++;
    scenario_refresh();
    wait_while_hanging(symbol);
    int code = library_state();
    if (!code) code = failure_of(scenario.failures, scenario.failure_count, symbol);
    if (!code && gpu) code = gpu_state(gpu, symbol);
    return (Guard){code};
}

/* ---- controls for tests ---- */

EXPORT void fake_nvml_scenario(const char *path) {
    pthread_mutex_lock(&scenario_lock);
    open_handles.delivered_xid = 0;
    scenario_use(path);
    pthread_mutex_unlock(&scenario_lock);
}

/* The same scenario, changed: events already delivered stay delivered. */
EXPORT void fake_nvml_changed(const char *path) {
    pthread_mutex_lock(&scenario_lock);
    scenario_use(path);
    pthread_mutex_unlock(&scenario_lock);
}

EXPORT unsigned fake_nvml_open_handles(void) { return open_handles.init_count + open_handles.samples + open_handles.event_sets; }
EXPORT unsigned long long fake_nvml_calls(void) { return open_handles.calls; }

/* ---- library and system ---- */

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&scenario_lock);
    static bool read_environment;
    const char *path = getenv("FAKE_NVML_SCENARIO");
    if (path && !read_environment) scenario_use(path);
    read_environment = true;
    scenario_refresh();
    wait_while_hanging(__func__);
    int code = scenario.init_code;
    if (!code && !open_handles.init_count++) open_handles.init_generation = scenario.generation;
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) {
    pthread_mutex_lock(&scenario_lock);
    int code = open_handles.init_count ? SUCCESS : UNINITIALIZED;
    if (open_handles.init_count) open_handles.init_count--;
    pthread_mutex_unlock(&scenario_lock);
    return code;
}

EXPORT const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "An error of the fake";
    }
}

int give_text(char *out, unsigned capacity, const char *text) {
    if (!*text) return NOT_SUPPORTED;
    if (strlen(text) >= capacity) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned capacity) {
    ENTER(NULL);
    return give_text(out, capacity, scenario.driver);
}

EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned capacity) {
    ENTER(NULL);
    return give_text(out, capacity, scenario.nvml);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(NULL);
    *version = scenario.cuda;
    return SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned capacity) {
    ENTER(NULL);
    for (unsigned i = 0; i < scenario.names.count; i++)
        if (scenario.names.items[i].pid == pid) return give_text(out, capacity, scenario.names.items[i].name);
    return NOT_FOUND;
}
