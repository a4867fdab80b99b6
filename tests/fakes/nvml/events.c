/* Events: XID errors, each delivered once. */
#include "call.h"

#include <stdlib.h>

enum { XID_CRITICAL_ERROR = 8 };

typedef struct { bool registered[MOST_GPUS]; } EventSet;
typedef struct { Gpu *gpu; unsigned long long type, data; unsigned gi, ci; } EventData;

EXPORT int nvmlEventSetCreate(EventSet **set) {
    ENTER(NULL);
    *set = calloc(1, sizeof **set);
    open_handles.event_sets++;
    return SUCCESS;
}

EXPORT int nvmlEventSetFree(EventSet *set) {
    pthread_mutex_lock(&scenario_lock);
    free(set);
    open_handles.event_sets--;
    pthread_mutex_unlock(&scenario_lock);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, unsigned long long *types) {
    ENTER(gpu);
    *types = gpu->number[N_events];
    return SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set) {
    ENTER(gpu);
    if (gpu->parent || (types & ~gpu->number[N_events])) return NOT_SUPPORTED;
    set->registered[gpu - scenario.gpus] = true;
    return SUCCESS;
}

static bool next_event(const EventSet *set, EventData *out) {
    for (unsigned i = 0; i < scenario.xids.count; i++) {
        const Xid *xid = &scenario.xids.items[i];
        if (xid->number <= open_handles.delivered_xid || !set->registered[xid->gpu]) continue;
        open_handles.delivered_xid = xid->number;
        *out = (EventData){&scenario.gpus[xid->gpu], XID_CRITICAL_ERROR, xid->xid, xid->gi, xid->ci};
        return true;
    }
    return false;
}

/* As a real driver: one lost GPU fails every wait of the set, after the events that were pending. */
static bool has_lost(const EventSet *set) {
    for (unsigned i = 0; i < MOST_GPUS; i++)
        if (set->registered[i] && scenario.gpus[i].lost) return true;
    return false;
}

EXPORT int nvmlEventSetWait_v2(EventSet *set, EventData *out, unsigned timeout_milliseconds) {
    unsigned long long until = now_microseconds() + timeout_milliseconds * 1000ull;
    ENTER(NULL);
    while (!next_event(set, out)) {
        if (has_lost(set)) return GPU_IS_LOST;
        unsigned long long now = now_microseconds();
        if (now >= until) return TIMEOUT;
        pthread_mutex_unlock(&scenario_lock);
        scenario_wait((until - now + 999) / 1000);
        pthread_mutex_lock(&scenario_lock);
        scenario_refresh();
        int code = library_state();
        if (code) return code;
    }
    return SUCCESS;
}
