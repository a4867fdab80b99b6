/* A fake libdcgm: the DCGM calls that read profiling fields, with values from a scenario file.
 *
 * It is compiled against NVIDIA's own headers of DCGM 3 or 4 (FAKE_DCGM_MAJOR): prototypes, structs and version words are
 * theirs. The file is named by FAKE_DCGM_SCENARIO or by fake_dcgm_scenario(), and read at every call. One fact a line:
 *
 *   listen 127.0.0.1:5555       a hostengine responds there; `listen unix:/run/dcgm.sock` on a Unix socket
 *   embedded -33                dcgmStartEmbedded returns this code (0 by default)
 *   generation 2                the hostengine was restarted: handles of before are not valid
 *   hang dcgmWatchFields        this call blocks until the line is removed
 *   fail dcgmWatchFields -17    this call returns this code
 *   age 30                      values were updated that many seconds ago
 *   gpu 3 GPU-UUID              the DCGM id and the uuid of a GPU
 *   refuse 3 -34                fields of GPU 3 cannot be watched: this code
 *   unreadable 3 -1             values of GPU 3 and its instances cannot be read: this code
 *   support 3 1001 1004         fields that GPU 3 can profile
 *   instance 5 3 9              GPU instance 5 of DCGM: on GPU 3, NVML's id is 9
 *   value gpu|instance ID FIELD double|int VALUE    VALUE may be blank, not_found, not_supported, not_permissioned
 */
#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUOTE(text) #text
#define TEXT(text) QUOTE(text)
enum { MOST = 64, MOST_VALUES = 1024 };

typedef struct { char call[64]; int code; } Failure;
typedef struct { unsigned id; char uuid[128]; int refuse, unreadable; unsigned short fields[MOST]; unsigned field_count; } Gpu;
typedef struct { unsigned id, gpu, nvml_id; } Instance;
typedef struct { dcgmGroupEntityPair_t entity; unsigned short field; char type; char text[64]; } Value;
typedef struct { dcgmHandle_t handle; unsigned generation; bool embedded; } Connection;
typedef struct { bool exists; dcgmHandle_t owner; dcgmGroupEntityPair_t entities[MOST]; unsigned count; } Group;
typedef struct { bool exists; dcgmHandle_t owner; char name[256]; unsigned short fields[MOST]; unsigned count; } FieldGroup;
typedef struct { dcgmHandle_t owner; dcgmGpuGrp_t group; dcgmFieldGrp_t fields; long long every; } Watch;

static struct {
    char listen[MOST][256];
    unsigned listen_count, generation, failure_count, gpu_count, instance_count, value_count;
    int embedded;
    double age;
    char hanging[64];
    Failure failures[MOST];
    Gpu gpus[DCGM_MAX_NUM_DEVICES];
    Instance instances[MOST];
    Value values[MOST_VALUES];
} scenario;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char path[4096];
static bool initialised;
static Connection connections[MOST];
static unsigned connection_count, last_handle;
static Group groups[DCGM_MAX_NUM_GROUPS];
static FieldGroup field_groups[DCGM_MAX_NUM_FIELD_GROUPS];
static Watch watches[MOST];
static unsigned watch_count;
static unsigned long long calls;

/* ---- scenario ---- */

static Gpu *find_gpu(unsigned id) {
    for (unsigned i = 0; i < scenario.gpu_count; i++)
        if (scenario.gpus[i].id == id) return &scenario.gpus[i];
    return NULL;
}

static void read_value(char *line) {
    Value *value = &scenario.values[scenario.value_count++];
    char kind[16], type[16];
    if (sscanf(line, "value %15s %u %hu %15s %63s", kind, &value->entity.entityId, &value->field, type, value->text) != 5)
        abort();
    value->entity.entityGroupId = strcmp(kind, "gpu") == 0 ? DCGM_FE_GPU : DCGM_FE_GPU_I;
    value->type = strcmp(type, "double") == 0 ? DCGM_FT_DOUBLE : DCGM_FT_INT64;
}

static void read_support(char *line) {
    strtok(line, " ");
    Gpu *gpu = find_gpu((unsigned)atoi(strtok(NULL, " ")));
    for (char *word; (word = strtok(NULL, " \n"));) gpu->fields[gpu->field_count++] = (unsigned short)atoi(word);
}

static void read_line(char *line) {
    unsigned id, gpu, nvml_id;
    int code;
    char word[128];
    if (strncmp(line, "value ", 6) == 0) read_value(line);
    else if (strncmp(line, "support ", 8) == 0) read_support(line);
    else if (sscanf(line, "listen %127s", word) == 1) strcpy(scenario.listen[scenario.listen_count++], word);
    else if (sscanf(line, "embedded %d", &scenario.embedded) == 1) return;
    else if (sscanf(line, "generation %u", &scenario.generation) == 1) return;
    else if (sscanf(line, "hang %63s", scenario.hanging) == 1) return;
    else if (sscanf(line, "age %lf", &scenario.age) == 1) return;
    else if (sscanf(line, "fail %63s %d", word, &code) == 2) {
        Failure *failure = &scenario.failures[scenario.failure_count++];
        strcpy(failure->call, word);
        failure->code = code;
    } else if (sscanf(line, "gpu %u %127s", &id, word) == 2) {
        Gpu *one = &scenario.gpus[scenario.gpu_count++];
        one->id = id;
        strcpy(one->uuid, word);
    } else if (sscanf(line, "refuse %u %d", &id, &code) == 2) find_gpu(id)->refuse = code;
    else if (sscanf(line, "unreadable %u %d", &id, &code) == 2) find_gpu(id)->unreadable = code;
    else if (sscanf(line, "instance %u %u %u", &id, &gpu, &nvml_id) == 3)
        scenario.instances[scenario.instance_count++] = (Instance){id, gpu, nvml_id};
    else {
        fprintf(stderr, "fake dcgm: cannot read scenario line: %s", line);
        abort();
    }
}

static void read_scenario(void) {
    memset(&scenario, 0, sizeof scenario);
    if (!*path && getenv("FAKE_DCGM_SCENARIO")) strcpy(path, getenv("FAKE_DCGM_SCENARIO"));
    FILE *file = fopen(path, "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file))
        if (*line != '#' && *line != '\n') read_line(line);
    if (file) fclose(file);
}

/* ---- start of every call ---- */

static Connection *find_connection(dcgmHandle_t handle) {
    for (unsigned i = 0; i < connection_count; i++)
        if (connections[i].handle == handle) return &connections[i];
    return NULL;
}

static void leave(int *code) {
    (void)code;
    pthread_mutex_unlock(&lock);
}

static int enter(const char *call) {
    pthread_mutex_lock(&lock);
    calls++;
    for (read_scenario(); strcmp(scenario.hanging, call) == 0; read_scenario()) {
        pthread_mutex_unlock(&lock);
        usleep(2000);
        pthread_mutex_lock(&lock);
    }
    for (unsigned i = 0; i < scenario.failure_count; i++)
        if (strcmp(scenario.failures[i].call, call) == 0) return scenario.failures[i].code;
    return initialised ? DCGM_ST_OK : DCGM_ST_UNINITIALIZED;
}

static int enter_connected(const char *call, dcgmHandle_t handle) {
    int code = enter(call);
    Connection *connection = find_connection(handle);
    if (code) return code;
    if (!connection) return DCGM_ST_CONNECTION_NOT_VALID;
    bool is_there = connection->embedded || scenario.listen_count;
    return is_there && connection->generation == scenario.generation ? DCGM_ST_OK : DCGM_ST_CONNECTION_NOT_VALID;
}

#define ENTER \
    int code __attribute__((cleanup(leave))) = enter(__func__); \
    if (code) return code
#define ENTER_CONNECTED(handle) \
    int code __attribute__((cleanup(leave))) = enter_connected(__func__, handle); \
    if (code) return code

/* ---- controls for tests ---- */

void fake_dcgm_scenario(const char *file) {
    pthread_mutex_lock(&lock);
    strcpy(path, file);
    pthread_mutex_unlock(&lock);
}

unsigned fake_dcgm_connections(void) { return connection_count; }
unsigned fake_dcgm_watches(void) { return watch_count; }
unsigned long long fake_dcgm_calls(void) { return calls; }
long long fake_dcgm_every(void) { return watch_count ? watches[0].every : 0; }
int fake_dcgm_is_initialised(void) { return initialised; }

/* ---- library and connections ---- */

dcgmReturn_t dcgmInit(void) {
    pthread_mutex_lock(&lock);
    initialised = true;
    pthread_mutex_unlock(&lock);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmShutdown(void) {
    pthread_mutex_lock(&lock);
    initialised = false;
    connection_count = watch_count = 0;
    pthread_mutex_unlock(&lock);
    return DCGM_ST_OK;
}

static dcgmHandle_t open_connection(bool embedded) {
    connections[connection_count++] = (Connection){++last_handle, scenario.generation, embedded};
    return last_handle;
}

static dcgmReturn_t close_connection(dcgmHandle_t handle, bool embedded) {
    Connection *connection = find_connection(handle);
    if (!connection || connection->embedded != embedded) return DCGM_ST_BADPARAM;
    *connection = connections[--connection_count];
    unsigned kept = 0;
    for (unsigned i = 0; i < watch_count; i++)
        if (watches[i].owner != handle) watches[kept++] = watches[i];
    watch_count = kept;
    for (unsigned i = 0; i < DCGM_MAX_NUM_GROUPS; i++) groups[i].exists &= groups[i].owner != handle;
    for (unsigned i = 0; i < DCGM_MAX_NUM_FIELD_GROUPS; i++) field_groups[i].exists &= field_groups[i].owner != handle;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle) {
    ENTER;
    if (mode != DCGM_OPERATION_MODE_AUTO) return DCGM_ST_BADPARAM;
    if (scenario.embedded) return scenario.embedded;
    *handle = open_connection(true);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle) {
    ENTER;
    if (params->version != dcgmConnectV2Params_version) return DCGM_ST_VER_MISMATCH;
    if (params->persistAfterDisconnect || !params->timeoutMs) return DCGM_ST_BADPARAM;
    for (unsigned i = 0; i < scenario.listen_count; i++) {
        bool is_unix = strncmp(scenario.listen[i], "unix:", 5) == 0;
        if (is_unix != params->addressIsUnixSocket || strcmp(scenario.listen[i] + (is_unix ? 5 : 0), address)) continue;
        *handle = open_connection(false);
        return DCGM_ST_OK;
    }
    return DCGM_ST_CONNECTION_NOT_VALID;
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle) {
    ENTER;
    return close_connection(handle, false);
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle) {
    ENTER;
    return close_connection(handle, true);
}

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t handle, dcgmVersionInfo_t *info) {
    ENTER_CONNECTED(handle);
    if (info->version != dcgmVersionInfo_version) return DCGM_ST_VER_MISMATCH;
    strcpy(info->rawBuildInfoString, "version:" TEXT(FAKE_DCGM_MAJOR) ".1.2;arch:x86_64;buildtype:Release");
    return DCGM_ST_OK;
}

const char *errorString(dcgmReturn_t result) {
    switch (result) {
        case DCGM_ST_CONNECTION_NOT_VALID: return "The connection to the host engine is not valid any longer";
        case DCGM_ST_REQUIRES_ROOT: return "This operation requires root";
        default: return "An error of the fake";
    }
}

/* ---- GPUs and instances ---- */

dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t handle, unsigned int ids[DCGM_MAX_NUM_DEVICES], int *count) {
    ENTER_CONNECTED(handle);
    *count = (int)scenario.gpu_count;
    for (unsigned i = 0; i < scenario.gpu_count; i++) ids[i] = scenario.gpus[i].id;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *hierarchy) {
    ENTER_CONNECTED(handle);
    if (hierarchy->version != dcgmMigHierarchy_version2) return DCGM_ST_VER_MISMATCH;
    hierarchy->count = 0;
    for (unsigned i = 0; i < scenario.instance_count; i++) {
        Instance *one = &scenario.instances[i];
        dcgmMigHierarchyInfo_v2 *gpu = &hierarchy->entityList[hierarchy->count++];
        *gpu = (dcgmMigHierarchyInfo_v2){.entity = {DCGM_FE_GPU_I, one->id}, .parent = {DCGM_FE_GPU, one->gpu}};
        strcpy(gpu->info.gpuUuid, find_gpu(one->gpu)->uuid);
        gpu->info.nvmlInstanceId = one->nvml_id;
        gpu->info.nvmlComputeInstanceId = (unsigned)-1;
        dcgmMigHierarchyInfo_v2 *compute = &hierarchy->entityList[hierarchy->count++];
        *compute = *gpu;
        compute->entity = (dcgmGroupEntityPair_t){DCGM_FE_GPU_CI, one->id + 100};
        compute->parent = gpu->entity;
        compute->info.nvmlComputeInstanceId = 0;
    }
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t handle, dcgmProfGetMetricGroups_t *request) {
    ENTER_CONNECTED(handle);
    if (request->version != dcgmProfGetMetricGroups_version) return DCGM_ST_VER_MISMATCH;
    Gpu *gpu = find_gpu(request->gpuId);
    if (!gpu) return DCGM_ST_BADPARAM;
    if (!gpu->field_count) return DCGM_ST_PROFILING_NOT_SUPPORTED;
    request->numMetricGroups = 0;
    for (unsigned i = 0; i < gpu->field_count; i++) { /* two fields a group, as on hardware that needs several passes */
        dcgmProfMetricGroupInfo_v2 *group = &request->metricGroups[i / 2];
        if (i % 2 == 0) *group = (dcgmProfMetricGroupInfo_v2){.majorId = i / 2};
        group->fieldIds[group->numFieldIds++] = gpu->fields[i];
        request->numMetricGroups = i / 2 + 1;
    }
    return DCGM_ST_OK;
}

/* ---- watches ---- */

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *id) {
    ENTER_CONNECTED(handle);
    if (type != DCGM_GROUP_EMPTY || !*name) return DCGM_ST_BADPARAM;
    for (unsigned i = 0; i < DCGM_MAX_NUM_GROUPS; i++)
        if (!groups[i].exists) {
            groups[i] = (Group){.exists = true, .owner = handle};
            *id = i;
            return DCGM_ST_OK;
        }
    return DCGM_ST_MAX_LIMIT;
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t id, dcgm_field_entity_group_t kind, dcgm_field_eid_t entity) {
    ENTER_CONNECTED(handle);
    bool exists = kind == DCGM_FE_GPU && find_gpu(entity);
    for (unsigned i = 0; i < scenario.instance_count; i++)
        exists |= kind == DCGM_FE_GPU_I && scenario.instances[i].id == entity;
    if (!exists || !groups[id].exists) return DCGM_ST_BADPARAM;
    groups[id].entities[groups[id].count++] = (dcgmGroupEntityPair_t){kind, entity};
    return DCGM_ST_OK;
}

#if FAKE_DCGM_MAJOR == 3
#define FIELD_IDS unsigned short
#else
#define FIELD_IDS const unsigned short
#endif

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t id) {
    ENTER_CONNECTED(handle);
    groups[id].exists = false;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int count, FIELD_IDS *ids, const char *name, dcgmFieldGrp_t *id) {
    ENTER_CONNECTED(handle);
    int free_slot = -1;
    for (int i = DCGM_MAX_NUM_FIELD_GROUPS - 1; i >= 0; i--) {
        if (!field_groups[i].exists) free_slot = i;
        else if (strcmp(field_groups[i].name, name) == 0) return DCGM_ST_DUPLICATE_KEY;
    }
    if (free_slot < 0) return DCGM_ST_MAX_LIMIT;
    FieldGroup *group = &field_groups[*id = (dcgmFieldGrp_t)free_slot];
    *group = (FieldGroup){.exists = true, .owner = handle, .count = (unsigned)count};
    strcpy(group->name, name);
    memcpy(group->fields, ids, (size_t)count * sizeof *ids);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t id) {
    ENTER_CONNECTED(handle);
    field_groups[id].exists = false;
    return DCGM_ST_OK;
}

static bool supports(const Gpu *gpu, unsigned short field) {
    for (unsigned i = 0; i < gpu->field_count; i++)
        if (gpu->fields[i] == field) return true;
    return false;
}

static Gpu *gpu_of(dcgmGroupEntityPair_t entity) {
    for (unsigned i = 0; i < scenario.instance_count; i++)
        if (entity.entityGroupId == DCGM_FE_GPU_I && scenario.instances[i].id == entity.entityId)
            return find_gpu(scenario.instances[i].gpu);
    return entity.entityGroupId == DCGM_FE_GPU ? find_gpu(entity.entityId) : NULL;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long every, double keep, int samples) {
    ENTER_CONNECTED(handle);
    if (every <= 0 || keep <= 0 || samples < 0 || !groups[group].exists || !field_groups[fields].exists) return DCGM_ST_BADPARAM;
    for (unsigned i = 0; i < groups[group].count; i++) {
        Gpu *gpu = gpu_of(groups[group].entities[i]);
        if (gpu != gpu_of(groups[group].entities[0])) return DCGM_ST_GROUP_INCOMPATIBLE;
        if (gpu->refuse) return gpu->refuse;
        for (unsigned j = 0; j < field_groups[fields].count; j++)
            if (!supports(gpu, field_groups[fields].fields[j])) return DCGM_ST_PROFILING_NOT_SUPPORTED;
    }
    watches[watch_count++] = (Watch){handle, group, fields, every};
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields) {
    ENTER_CONNECTED(handle);
    unsigned kept = 0;
    for (unsigned i = 0; i < watch_count; i++)
        if (watches[i].owner != handle || watches[i].group != group || watches[i].fields != fields) watches[kept++] = watches[i];
    watch_count = kept;
    return DCGM_ST_OK;
}

/* ---- values ---- */

static bool is_same(dcgmGroupEntityPair_t one, dcgmGroupEntityPair_t other) {
    return one.entityGroupId == other.entityGroupId && one.entityId == other.entityId;
}

static bool is_watched(dcgmHandle_t handle, dcgmGroupEntityPair_t entity, unsigned short field) {
    for (unsigned i = 0; i < watch_count; i++) {
        if (watches[i].owner != handle) continue;
        Group *group = &groups[watches[i].group];
        FieldGroup *fields = &field_groups[watches[i].fields];
        for (unsigned j = 0; j < group->count; j++)
            for (unsigned k = 0; k < fields->count; k++)
                if (is_same(group->entities[j], entity) && fields->fields[k] == field) return true;
    }
    return false;
}

static const char *SENTINELS[] = {"blank", "not_found", "not_supported", "not_permissioned"};

static void fill_value(const Value *from, dcgmFieldValue_v2 *to) {
    static const double doubles[] = {DCGM_FP64_BLANK, DCGM_FP64_NOT_FOUND, DCGM_FP64_NOT_SUPPORTED, DCGM_FP64_NOT_PERMISSIONED};
    static const int64_t integers[] = {DCGM_INT64_BLANK, DCGM_INT64_NOT_FOUND, DCGM_INT64_NOT_SUPPORTED, DCGM_INT64_NOT_PERMISSIONED};
    to->fieldType = (unsigned short)from->type;
    bool is_double = from->type == DCGM_FT_DOUBLE;
    if (is_double) to->value.dbl = strtod(from->text, NULL);
    else if (strcmp(from->text, "blank32") == 0) to->value.i64 = DCGM_INT32_BLANK;
    else to->value.i64 = strtoll(from->text, NULL, 0);
    for (unsigned i = 0; i < 4; i++) {
        if (strcmp(from->text, SENTINELS[i])) continue;
        if (is_double) to->value.dbl = doubles[i];
        else to->value.i64 = integers[i];
    }
}

static void read_field(dcgmHandle_t handle, dcgmGroupEntityPair_t entity, unsigned short field, unsigned flags, dcgmFieldValue_v2 *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *to = (dcgmFieldValue_v2){.version = dcgmFieldValue_version2, .entityGroupId = entity.entityGroupId,
        .entityId = entity.entityId, .fieldId = field, .status = DCGM_ST_NO_DATA};
    to->ts = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - (int64_t)(scenario.age * 1e6);
    Gpu *gpu = gpu_of(entity);
    if (field == DCGM_FI_DEV_UUID && entity.entityGroupId == DCGM_FE_GPU && gpu && flags == DCGM_FV_FLAG_LIVE_DATA) {
        to->status = DCGM_ST_OK;
        to->fieldType = DCGM_FT_STRING;
        strcpy(to->value.str, gpu->uuid);
        return;
    }
    if (!is_watched(handle, entity, field)) {
        to->status = DCGM_ST_NOT_WATCHED;
        to->ts = 0;
        return;
    }
    for (unsigned i = 0; i < scenario.value_count; i++)
        if (is_same(scenario.values[i].entity, entity) && scenario.values[i].field == field) {
            to->status = DCGM_ST_OK;
            fill_value(&scenario.values[i], to);
        }
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned int entity_count,
                                         unsigned short fields[], unsigned int field_count, unsigned int flags,
                                         dcgmFieldValue_v2 values[]) {
    ENTER_CONNECTED(handle);
    if (!entity_count || !field_count || entity_count > 64) return DCGM_ST_BADPARAM; /* the limit of DCGM 3 */
    unsigned count = entity_count * field_count;
    for (unsigned i = 0; i < entity_count; i++) {
        Gpu *gpu = gpu_of(entities[i]);
        if (gpu && gpu->unreadable) return gpu->unreadable;
    }
    for (unsigned i = 0; i < entity_count; i++)
        for (unsigned j = 0; j < field_count; j++) /* in no useful order */
            read_field(handle, entities[i], fields[j], flags, &values[count - 1 - (i * field_count + j)]);
    return DCGM_ST_OK;
}
