/* Reads a scenario file. See scenario.h for the format. */
#include "scenario.h"

#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

Scenario scenario;
pthread_mutex_t scenario_lock = PTHREAD_MUTEX_INITIALIZER;

static char path[4096];
static struct timespec modified;
static off_t size;
static unsigned long long looked_at;
static int watch = -1; /* inotify watch of the scenario folder */

/* Often enough for a test that waits, seldom enough to cost nothing in a benchmark. */
static const unsigned long long LOOK_EVERY_MICROSECONDS = 5000;

#define AS_STRING(name) #name,
static const char *number_names[] = {NUMBERS(AS_STRING)};
static const char *text_names[] = {TEXTS(AS_STRING)};
static const char *type_names[] = {"double", "uint", "ulong", "ull", "sll", "int", "ushort"};

#define GROW(list) \
    do { \
        if ((list).count == (list).capacity) { \
            (list).capacity = (list).capacity ? (list).capacity * 2 : 16; \
            (list).items = realloc((list).items, (list).capacity * sizeof *(list).items); \
        } \
    } while (0)

unsigned long long now_microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000ull + (unsigned long long)now.tv_nsec / 1000;
}

static int find_name(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static void complain(const char *line) {
    fprintf(stderr, "fake nvml: cannot read scenario line: %s\n", line);
    abort();
}

static char *next_word(char **rest) {
    char *word = strsep(rest, " ");
    return word ? word : "";
}

static unsigned long long next_number(char **rest) { return strtoull(next_word(rest), NULL, 0); }

static void add_failure(Failure *failures, unsigned *count, char **rest) {
    if (*count == MOST_FAILURES) complain("too many failures");
    Failure *failure = &failures[(*count)++];
    snprintf(failure->symbol, sizeof failure->symbol, "%s", next_word(rest));
    failure->code = (int)next_number(rest);
}

static void add_process(Gpu *gpu, int list, char **rest) {
    GROW(gpu->processes[list]);
    Process *process = &gpu->processes[list].items[gpu->processes[list].count++];
    process->pid = (unsigned)next_number(rest);
    const char *memory = next_word(rest);
    process->memory = strcmp(memory, "none") == 0 ? ~0ull : strtoull(memory, NULL, 0);
}

static void add_usage(Gpu *gpu, bool has_time, char **rest) {
    GROW(gpu->usages);
    Usage *usage = &gpu->usages.items[gpu->usages.count++];
    usage->pid = (unsigned)next_number(rest);
    usage->at = has_time ? next_number(rest) : 0;
    usage->sm = (unsigned)next_number(rest);
    usage->memory = (unsigned)next_number(rest);
    usage->encoder = (unsigned)next_number(rest);
    usage->decoder = (unsigned)next_number(rest);
}

static void add_busy_sample(Gpu *gpu, char **rest) {
    GROW(gpu->busy);
    BusySample *sample = &gpu->busy.items[gpu->busy.count++];
    sample->at = next_number(rest);
    sample->percent = (unsigned)next_number(rest);
}

static void add_field(Gpu *gpu, char **rest) {
    if (gpu->field_count == MOST_FIELDS) complain("too many fields");
    Field *field = &gpu->fields[gpu->field_count++];
    field->id = (unsigned)next_number(rest);
    field->scope = (unsigned)next_number(rest);
    int type = find_name(type_names, 7, next_word(rest));
    if (type < 0) complain("unknown type of a field");
    field->type = (unsigned)type;
    const char *value = next_word(rest);
    if (type == 0) field->value.d = strtod(value, NULL);
    else if (type == 5) field->value.i = atoi(value);
    else field->value.ull = strtoull(value, NULL, 0);
}

static void add_gpm(Gpu *gpu, char **rest) {
    if (gpu->gpm_count == MOST_GPM) complain("too many GPM metrics");
    Gpm *metric = &gpu->gpm[gpu->gpm_count++];
    metric->id = (unsigned)next_number(rest);
    metric->value = strtod(next_word(rest), NULL);
}

static void read_gpu_fact(Gpu *gpu, char **rest, const char *line) {
    const char *key = next_word(rest);
    int index;
    if ((index = find_name(number_names, NUMBER_COUNT, key)) >= 0) {
        gpu->has[index] = true;
        gpu->number[index] = next_number(rest);
    } else if ((index = find_name(text_names, TEXT_COUNT, key)) >= 0) {
        snprintf(gpu->text[index], sizeof gpu->text[index], "%s", *rest ? *rest : "");
    } else if (strcmp(key, "compute") == 0) add_process(gpu, COMPUTE, rest);
    else if (strcmp(key, "graphics") == 0) add_process(gpu, GRAPHICS, rest);
    else if (strcmp(key, "mps") == 0) add_process(gpu, MPS, rest);
    else if (strcmp(key, "usage") == 0) add_usage(gpu, false, rest);
    else if (strcmp(key, "sample") == 0) add_usage(gpu, true, rest);
    else if (strcmp(key, "busy_sample") == 0) add_busy_sample(gpu, rest);
    else if (strcmp(key, "field") == 0) add_field(gpu, rest);
    else if (strcmp(key, "gpm") == 0) add_gpm(gpu, rest);
    else if (strcmp(key, "fail") == 0) add_failure(gpu->failures, &gpu->failure_count, rest);
    else if (strcmp(key, "growing") == 0) gpu->growing = (unsigned)next_number(rest);
    else if (strcmp(key, "lost") == 0) gpu->lost = true;
    else complain(line);
}

static void read_gpu_line(char **rest, const char *line) {
    unsigned index = (unsigned)next_number(rest);
    if (index >= MOST_GPUS) complain(line);
    Gpu *gpu = &scenario.gpus[index];
    gpu->exists = true;
    if (index >= scenario.gpu_count) scenario.gpu_count = index + 1;
    if (*rest && strncmp(*rest, "mig ", 4) == 0) {
        next_word(rest);
        unsigned instance = (unsigned)next_number(rest);
        if (instance >= MOST_INSTANCES) complain(line);
        Gpu *parent = gpu;
        gpu = &scenario.instances[index][instance];
        gpu->exists = true;
        gpu->parent = parent;
    }
    if (*rest) read_gpu_fact(gpu, rest, line);
}

static void add_xid(char **rest) {
    GROW(scenario.xids);
    Xid *xid = &scenario.xids.items[scenario.xids.count++];
    xid->number = next_number(rest);
    xid->gpu = (unsigned)next_number(rest);
    xid->xid = (unsigned)next_number(rest);
    xid->gi = *rest ? (unsigned)next_number(rest) : ~0u;
    xid->ci = *rest ? (unsigned)next_number(rest) : ~0u;
}

static void add_name(char **rest) {
    GROW(scenario.names);
    Name *name = &scenario.names.items[scenario.names.count++];
    name->pid = (unsigned)next_number(rest);
    snprintf(name->name, sizeof name->name, "%s", *rest ? *rest : "");
}

static void read_line(char *line) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", line);
    char *rest = line;
    const char *key = next_word(&rest);
    if (strcmp(key, "gpu") == 0) read_gpu_line(&rest, copy);
    else if (strcmp(key, "driver") == 0) snprintf(scenario.driver, sizeof scenario.driver, "%s", next_word(&rest));
    else if (strcmp(key, "nvml") == 0) snprintf(scenario.nvml, sizeof scenario.nvml, "%s", next_word(&rest));
    else if (strcmp(key, "cuda") == 0) scenario.cuda = (int)next_number(&rest);
    else if (strcmp(key, "init") == 0) scenario.init_code = (int)next_number(&rest);
    else if (strcmp(key, "generation") == 0) scenario.generation = next_number(&rest);
    else if (strcmp(key, "stale") == 0) scenario.stale_code = (int)next_number(&rest);
    else if (strcmp(key, "hang") == 0) snprintf(scenario.hanging, sizeof scenario.hanging, "%s", next_word(&rest));
    else if (strcmp(key, "fail") == 0) add_failure(scenario.failures, &scenario.failure_count, &rest);
    else if (strcmp(key, "xid") == 0) add_xid(&rest);
    else if (strcmp(key, "process") == 0) add_name(&rest);
    else complain(copy);
}

static void forget_gpu(Gpu *gpu) {
    for (int list = 0; list < LISTS; list++) free(gpu->processes[list].items);
    free(gpu->usages.items);
    free(gpu->busy.items);
}

/* GPUs stay at their addresses: a handle outlives a change of the scenario, as it does in a driver. */
static void forget_world(void) {
    for (int i = 0; i < MOST_GPUS; i++) {
        forget_gpu(&scenario.gpus[i]);
        for (int k = 0; k < MOST_INSTANCES; k++) forget_gpu(&scenario.instances[i][k]);
    }
    free(scenario.xids.items);
    free(scenario.names.items);
    memset(&scenario, 0, sizeof scenario);
    scenario.stale_code = UNINITIALIZED;
}

static void read_world(void) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "fake nvml: cannot open scenario %s\n", path);
        abort();
    }
    forget_world();
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) >= 0) {
        line[strcspn(line, "#\n")] = '\0';
        if (*line) read_line(line);
    }
    free(line);
    fclose(file);
}

static void look_at_file(void) {
    struct stat found;
    if (!*path || stat(path, &found) != 0) return;
    if (found.st_size == size && found.st_mtim.tv_sec == modified.tv_sec && found.st_mtim.tv_nsec == modified.tv_nsec)
        return;
    size = found.st_size;
    modified = found.st_mtim;
    read_world();
}

static void watch_folder(void) {
    char folder[sizeof path];
    snprintf(folder, sizeof folder, "%s", path);
    if (watch >= 0) close(watch);
    watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(watch, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
}

void scenario_use(const char *new_path) {
    snprintf(path, sizeof path, "%s", new_path);
    watch_folder();
    size = -1;
    look_at_file();
}

void scenario_refresh(void) {
    unsigned long long now = now_microseconds();
    if (now - looked_at < LOOK_EVERY_MICROSECONDS) return;
    looked_at = now;
    look_at_file();
}

/* Waits as a driver does: asleep until something happens, at no cost. */
void scenario_wait(unsigned milliseconds) {
    char changes[4096];
    struct pollfd change = {.fd = watch, .events = POLLIN};
    if (poll(&change, 1, (int)milliseconds) > 0)
        while (read(watch, changes, sizeof changes) > 0) looked_at = 0;
}
