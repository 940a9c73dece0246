/* A mount table and BeeGFS clients as the tests have them. Preloaded (LD_PRELOAD), what is opened below
 * /proc/self/mountinfo and /proc/fs/beegfs comes from the folder that SHOWN_PROC names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const char *shown(const char *path, char *room)
{
    const char *folder = getenv("SHOWN_PROC");

    if (!folder || (strcmp(path, "/proc/self/mountinfo") && strncmp(path, "/proc/fs/beegfs", 15)))
        return path;
    snprintf(room, PATH_MAX, "%s%s", folder, path + strlen("/proc"));
    return room;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        char room[PATH_MAX]; \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return NEXT(name)(shown(path, room), flags, mode); \
    }

OPEN(open)
OPEN(open64)

DIR *opendir(const char *path)
{
    char room[PATH_MAX];

    return NEXT(opendir)(shown(path, room));
}
