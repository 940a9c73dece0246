/* A quota that is used up as BeeGFS reports it: at the open that creates a file. Preloaded (LD_PRELOAD), each
 * open with O_CREAT of a path that holds QUOTA_OF fails with EDQUOT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* `parameters` and `values` of a call that opens `path` with `flags`. */
#define OPEN(name, parameters, values) \
    int name parameters \
    { \
        const char *of = getenv("QUOTA_OF"); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (of && flags & O_CREAT && strstr(path, of)) \
            return errno = EDQUOT, -1; \
        return NEXT(name) values; \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPEN(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
