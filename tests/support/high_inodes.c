/* Inode numbers as BeeGFS states them: hashes of all 64 bits, of which half lie at or above 2^63. Preloaded
 * (LD_PRELOAD), it sets the highest bit of each number that a program gets of a file. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <sys/stat.h>

#define HIGHEST ((ino64_t)1 << 63)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* `parameters` and `values` of a call that fills `found`, a stat. */
#define STAT(name, parameters, values) \
    int name parameters \
    { \
        int failed = NEXT(name) values; \
        if (!failed) \
            found->st_ino |= HIGHEST; \
        return failed; \
    }

STAT(stat, (const char *path, struct stat *found), (path, found))
STAT(lstat, (const char *path, struct stat *found), (path, found))
STAT(fstat, (int fd, struct stat *found), (fd, found))
STAT(fstatat, (int fd, const char *path, struct stat *found, int flags), (fd, path, found, flags))
STAT(stat64, (const char *path, struct stat64 *found), (path, found))
STAT(lstat64, (const char *path, struct stat64 *found), (path, found))
STAT(fstat64, (int fd, struct stat64 *found), (fd, found))
STAT(fstatat64, (int fd, const char *path, struct stat64 *found, int flags), (fd, path, found, flags))

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *found)
{
    int failed = NEXT(statx)(fd, path, flags, mask, found);

    if (!failed)
        found->stx_ino |= HIGHEST;
    return failed;
}

struct dirent64 *readdir64(DIR *folder)
{
    struct dirent64 *entry = NEXT(readdir64)(folder);

    if (entry)
        entry->d_ino |= HIGHEST;
    return entry;
}

struct dirent *readdir(DIR *folder)
{
    struct dirent *entry = NEXT(readdir)(folder);

    if (entry)
        entry->d_ino |= HIGHEST;
    return entry;
}
