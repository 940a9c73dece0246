/* Delays each metadata call below a folder, as a network file system does.
 *
 * LD_PRELOAD=slow.so SLOW_BELOW=/folder SLOW_MICROSECONDS=500 command...
 *
 * Counted are calls by name: open, stat, rename, link, unlink, mkdir, chmod, chown, times, and those
 * that change attributes by descriptor. Paths that are relative count too (tools change directory or
 * walk by descriptor); absolute ones outside the folder do not (a program's own start).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void rest(void) {
    static long nanoseconds = -1;
    if (nanoseconds < 0) {
        const char *text = getenv("SLOW_MICROSECONDS");
        nanoseconds = text ? atol(text) * 1000 : 0;
    }
    struct timespec pause = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    nanosleep(&pause, NULL);
}

static void by_name(const char *path) {
    const char *below = getenv("SLOW_BELOW");
    if (path && below && (path[0] != '/' || !strncmp(path, below, strlen(below)))) rest();
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        by_name(path); return real(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        by_name(path); return real(at, path, flags, mode); }
#define ONE(name, type) \
    int name(const char *path, type value) { \
        REAL(int, name, const char *, type); by_name(path); return real(path, value); }

OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
ONE(stat, struct stat *) ONE(lstat, struct stat *) ONE(stat64, struct stat64 *) ONE(lstat64, struct stat64 *)
ONE(chmod, mode_t) ONE(mkdir, mode_t) ONE(rename, const char *) ONE(link, const char *)

int unlink(const char *path) { REAL(int, unlink, const char *); by_name(path); return real(path); }
int mkdirat(int at, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t); by_name(path); return real(at, path, mode); }
int unlinkat(int at, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int); by_name(path); return real(at, path, flags); }
int fstatat(int at, const char *path, struct stat *seen, int flags) {
    REAL(int, fstatat, int, const char *, struct stat *, int);
    if (path && *path) by_name(path);
    return real(at, path, seen, flags); }
int fstatat64(int at, const char *path, struct stat64 *seen, int flags) {
    REAL(int, fstatat64, int, const char *, struct stat64 *, int);
    if (path && *path) by_name(path);
    return real(at, path, seen, flags); }
int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, renameat, int, const char *, int, const char *); by_name(old); return real(from, old, to, new); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    by_name(old); return real(from, old, to, new, flags); }
int fchmodat(int at, const char *path, mode_t mode, int flags) {
    REAL(int, fchmodat, int, const char *, mode_t, int); by_name(path); return real(at, path, mode, flags); }
int lchown(const char *path, uid_t uid, gid_t gid) {
    REAL(int, lchown, const char *, uid_t, gid_t); by_name(path); return real(path, uid, gid); }
int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
    REAL(int, utimensat, int, const char *, const struct timespec *, int);
    if (path) by_name(path); else rest();
    return real(at, path, times, flags); }
int futimens(int fd, const struct timespec times[2]) {
    REAL(int, futimens, int, const struct timespec *); rest(); return real(fd, times); }
int fchmod(int fd, mode_t mode) { REAL(int, fchmod, int, mode_t); rest(); return real(fd, mode); }
int fchown(int fd, uid_t uid, gid_t gid) {
    REAL(int, fchown, int, uid_t, gid_t); rest(); return real(fd, uid, gid); }
/* openat2 has no wrapper of its own. */
long syscall(long number, ...) {
    REAL(long, syscall, long, ...);
    va_list list; va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
#ifdef SYS_openat2
    if (number == SYS_openat2) by_name((const char *)b);
#endif
    return real(number, a, b, c, d, e, f);
}
