/*
 * Answers the FUSE requests that need no decision, before they reach Python.
 *
 * A warm `grep -r` opens and closes every file, and the kernel has all of their pages. Each of
 * these two requests costs Python more than the kernel needs for everything else. Here they cost a
 * system call each.
 *
 * The one idea is the grant. Once Python has found a version of a document or attachment it may
 * grant that node: "while the file at this path is this version, opening the node for reading
 * needs no decision". An OPEN of a granted node opens the file beneath the home, compares inode,
 * size, mtime and ctime with the grant, and answers. Everything else goes to libfuse, pyfuse3 and
 * Python, as if this module did not exist: other requests, nodes without a grant, a file that is
 * not the granted version any more, any error. A grant that is out of date can therefore never show
 * wrong bytes, only the version that it names.
 *
 * A directory may be granted too: "while there is no .gitignore in it, a lookup of that needs no
 * decision". rg looks for four such names in every directory that it walks. The kernel caches the
 * answer. Python assumes that it has cached it for each granted directory, so nothing is noted here.
 *
 * Python also has to know which process read which version, because a save is judged by what its
 * writer has read. A process may read a file and end before Python runs again. So the first open of
 * a thread goes to Python, which looks at the process while the kernel holds it in open(2), and then
 * admits the thread for a moment. Opens of admitted threads are answered here and noted, and Python
 * takes the notes before it judges a save. If the notes are full, opens go to Python.
 *
 *     OPEN        of a granted node by an admitted thread, read-only: open, compare, reply
 *     READ        of such a handle: pread, never beyond the size of the version
 *     RELEASE     of such a handle: close
 *     FLUSH       of such a handle: nothing to do (kernels before 5.16 ignore FOPEN_NOFLUSH)
 *     LOOKUP      of a name like .gitignore in a granted directory: ENOENT, if there is none on the disk
 *     OPENDIR     ENOSYS, once: the kernel then opens directories by itself and caches listings
 *     READDIR(PLUS) after the last name: nothing
 *     READDIR(PLUS), FSYNCDIR without a handle: the node is put in place of the handle, because
 *                 pyfuse3 passes only the handle on
 *
 * How requests get here: this file defines `fuse_session_receive_buf`. It is loaded with
 * RTLD_GLOBAL before pyfuse3, so pyfuse3 is bound to this definition, which calls libfuse's. No
 * other symbol and no internal structure of libfuse is used. If the binding fails, pyfuse3 calls
 * libfuse directly and nothing here runs.
 *
 * Threads: all state belongs to the thread that serves the mount. The functions for Python raise
 * if another thread calls them, so nothing needs a lock. While requests are answered here the GIL
 * is released. A forked child answers nothing.
 */

#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT, dl_iterate_phdr */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#define FUSE_USE_VERSION 30

#include <Python.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <link.h>
#include <linux/fuse.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5) /* since Linux 5.16 */
#endif

/* A handle given out here is FAST_HANDLE + file descriptor; Python's handles are small numbers. */
#define FAST_HANDLE (UINT64_C(1) << 62)
/* In place of a directory handle: NODE_HANDLE + node. Node numbers have 63 bits. */
#define NODE_HANDLE (UINT64_C(1) << 63)
/* In the position of a listing's last name: nothing follows. The kernel asks nevertheless. */
#define LAST_POSITION (UINT64_C(1) << 23)

#define MAX_READ (1 << 20)      /* larger reads go to Python; the kernel sends at most this much */
#define MAX_PATH 4096
#define MAX_NOTES 1024          /* opens noted between two calls of drain() */
#define CALLER_SLOTS 256        /* admitted threads; a power of two */
#define SPIN_NS 60000L          /* how long to look for the next request without sleeping */
#define MAX_FAILED_SPINS 4      /* in a row; after that SPIN_PAUSE waits sleep at once */
#define SPIN_PAUSE 256
#define GRACE_NS 100000L        /* how long to sleep for the next request */
#define MAX_PREFETCH (1 << 20)  /* larger files are read ahead by the kernel once they are opened */
#define PREFETCH_DEPTH 3        /* sessions/<root>: children/<child>/attachments */
#define PREFETCH_NAMES 256      /* below each directory */
#define ABSENT_S 3600           /* how long the kernel caches that a name does not exist */
#define SCAN_BYTES (32 << 10)   /* of names in a directory that scan() lists */
#define MAX_SCANNED 128         /* names in it */
#define TURN_NS 2000000L        /* after this long other tasks of the event loop have to run */

/* Names that programs look for in every directory of a tree. */
static const char *const probed_names[] = {".fdignore", ".git", ".gitignore", ".ignore", ".rgignore"};
#define PROBED (sizeof probed_names / sizeof *probed_names)

/* -- state: see "Threads" above ---------------------------------------------------------------- */

struct grant {
    uint64_t node; /* 0: free, REMOVED: was removed */
    uint64_t inode;
    int64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
    char *path; /* relative to the home */
    bool is_noted;
    bool is_directory; /* only node and path are set */
};

#define REMOVED UINT64_MAX

struct open_file {
    uint64_t node; /* 0: this descriptor is not ours */
    int64_t size;
    uint32_t thread; /* that opened it */
};

/* A noted OPEN. */
struct note {
    uint32_t thread;
    uint64_t node;
    int64_t opened_ns; /* since 1970 */
};

/* An admitted thread. FUSE calls it `pid`. */
struct caller {
    uint32_t thread;
    int64_t until_ns;
};

static struct {
    bool is_armed; /* start() was called; the next session that receives is served */
    bool wants_dirs;
    int fd;
    int home_fd;
    pthread_t thread;

    struct grant *grants; /* open addressing; the capacity is a power of two */
    size_t capacity, used /* with removed ones */, granted;

    struct open_file *files; /* by descriptor */
    size_t files_size;

    struct note notes[MAX_NOTES];
    size_t noted;

    struct caller callers[CALLER_SLOTS]; /* by the low bits of the thread; the last one wins */

    char *read_buffer;
    uint32_t lister, lister_uid; /* of the READDIR that was passed on last */
    int failed_spins, spin_pause; /* see next_comes_soon() */
    bool pauses_after_end;        /* see pause_after_end() */

    /* state() reads these in any thread. */
    atomic_bool is_bound;    /* fd is the session's descriptor */
    atomic_bool caches_dirs; /* wanted by start() and offered by the kernel */
    _Atomic uint64_t lookups, opens, reads, releases, vain_spins;
} fast = {.fd = -1, .home_fd = -1};

static PyObject *stat_result; /* the type in `os` */

static int (*real_receive)(struct fuse_session *, struct fuse_buf *);

static int64_t in_ns(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return in_ns(now);
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* -- grants ------------------------------------------------------------------------------------ */

/* Node numbers are hashes already; the multiplication spreads those of tests. */
static size_t first_slot(uint64_t node)
{
    return (size_t)(node * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (fast.capacity - 1);
}

static struct grant *find_grant(uint64_t node)
{
    if (fast.capacity == 0 || node == 0 || node == REMOVED)
        return NULL;
    for (size_t i = first_slot(node);; i = (i + 1) & (fast.capacity - 1)) {
        struct grant *grant = &fast.grants[i];
        if (grant->node == node)
            return grant;
        if (grant->node == 0)
            return NULL;
    }
}

static struct grant *free_slot(uint64_t node)
{
    size_t i = first_slot(node);
    while (fast.grants[i].node != 0)
        i = (i + 1) & (fast.capacity - 1);
    return &fast.grants[i];
}

/* Make room for one more grant. Removed slots go away when the table is rebuilt. */
static bool reserve_grant(void)
{
    if (fast.capacity != 0 && fast.used + 1 <= fast.capacity / 2)
        return true;
    size_t capacity = 1024;
    while (capacity / 4 < fast.granted + 1)
        capacity *= 2;
    struct grant *grants = calloc(capacity, sizeof *grants), *old = fast.grants;
    if (grants == NULL)
        return false;
    size_t old_capacity = fast.capacity;
    fast.grants = grants;
    fast.capacity = capacity;
    fast.used = fast.granted;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].node != 0 && old[i].node != REMOVED)
            *free_slot(old[i].node) = old[i];
    free(old);
    return true;
}

static bool remove_grant(uint64_t node)
{
    struct grant *grant = find_grant(node);
    if (grant == NULL)
        return false;
    free(grant->path);
    *grant = (struct grant){.node = REMOVED};
    fast.granted--;
    return true;
}

/* Add a grant with a copy of `path`, in place of one for the same node. False: no memory. */
static bool add_grant(const struct grant *grant, const char *path)
{
    char *copy = strdup(path);
    remove_grant(grant->node);
    if (copy == NULL || !reserve_grant()) {
        free(copy);
        return false;
    }
    struct grant *slot = free_slot(grant->node);
    *slot = *grant;
    slot->path = copy;
    fast.used++;
    fast.granted++;
    return true;
}

/* -- open files -------------------------------------------------------------------------------- */

static bool add_file(int fd, uint64_t node, int64_t size, uint32_t thread)
{
    if ((size_t)fd >= fast.files_size) {
        size_t wanted = fast.files_size ? fast.files_size * 2 : 256;
        while (wanted <= (size_t)fd)
            wanted *= 2;
        struct open_file *files = realloc(fast.files, wanted * sizeof *files);
        if (files == NULL)
            return false;
        memset(files + fast.files_size, 0, (wanted - fast.files_size) * sizeof *files);
        fast.files = files;
        fast.files_size = wanted;
    }
    fast.files[fd] = (struct open_file){node, size, thread};
    return true;
}

/* The open file of a handle; NULL if the handle was not given out here or is closed. */
static struct open_file *find_file(uint64_t handle)
{
    uint64_t fd = handle - FAST_HANDLE;
    if (!(handle & FAST_HANDLE) || handle & NODE_HANDLE || fd >= fast.files_size)
        return NULL;
    return fast.files[fd].node != 0 ? &fast.files[fd] : NULL;
}

static int fd_of(const struct open_file *file)
{
    return (int)(file - fast.files);
}

static void close_file(struct open_file *file)
{
    file->node = 0;
    close(fd_of(file));
}

/* -- callers ----------------------------------------------------------------------------------- */

static struct caller *caller_slot(uint32_t thread)
{
    return &fast.callers[thread & (CALLER_SLOTS - 1)];
}

static bool is_admitted(uint32_t thread)
{
    const struct caller *caller = caller_slot(thread);
    return caller->thread == thread && caller->until_ns > now_ns();
}

/* -- requests ---------------------------------------------------------------------------------- */

/* A request as far as this module understands it. */
struct request {
    struct fuse_in_header header;
    union {
        struct fuse_open_in open;
        struct fuse_read_in read;
        struct fuse_release_in release;
        struct fuse_flush_in flush;
        struct fuse_fsync_in fsync;
        struct fuse_init_in init;
    } in;
    const char *name; /* of a LOOKUP: in the buffer that was parsed */
};

/* How many bytes of its body a request of this kind must have; -1 for kinds left to libfuse. */
static ssize_t body_size(uint32_t opcode)
{
    switch (opcode) {
    case FUSE_LOOKUP: return 1; /* a name that ends with a zero byte */
    case FUSE_OPEN: return sizeof(struct fuse_open_in);
    case FUSE_READ:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS: return sizeof(struct fuse_read_in);
    case FUSE_RELEASE: return sizeof(struct fuse_release_in);
    case FUSE_FLUSH: return sizeof(struct fuse_flush_in);
    case FUSE_FSYNCDIR: return sizeof(struct fuse_fsync_in);
    case FUSE_OPENDIR: return sizeof(struct fuse_open_in);
    case FUSE_INIT: return 16; /* up to `flags`; later members came with later kernels */
    default: return -1;
    }
}

/* Read a request. False: too short, of inconsistent length, or of a kind left to libfuse. */
static bool parse(const void *data, size_t size, struct request *request)
{
    memset(request, 0, sizeof *request);
    if (size < sizeof request->header)
        return false;
    memcpy(&request->header, data, sizeof request->header);
    ssize_t body = body_size(request->header.opcode);
    if (request->header.len != size || body < 0 || size - sizeof request->header < (size_t)body)
        return false;
    memcpy(&request->in, (const char *)data + sizeof request->header, (size_t)body);
    if (request->header.opcode == FUSE_LOOKUP) {
        request->name = (const char *)data + sizeof request->header;
        return memchr(request->name, 0, size - sizeof request->header) == (const char *)data + size - 1;
    }
    return true;
}

/* Send a reply. False if the kernel did not take it: the caller was interrupted, or unmounted. */
static bool reply(const struct request *request, int error, void *payload, size_t size)
{
    struct fuse_out_header header = {
        .len = (uint32_t)(sizeof header + size),
        .error = -error,
        .unique = request->header.unique,
    };
    struct iovec parts[] = {{&header, sizeof header}, {payload, size}};
    return writev(fast.fd, parts, size ? 2 : 1) == (ssize_t)header.len;
}

static bool is_granted_version(const struct grant *grant, int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == grant->inode &&
           info.st_size == grant->size && in_ns(info.st_mtim) == grant->mtime_ns &&
           in_ns(info.st_ctim) == grant->ctime_ns;
}

/* Open the granted version. -1: it is not at its path any more, or cannot be opened. */
static int open_version(const struct grant *grant)
{
    struct open_how how = {
        /* O_NONBLOCK: should the path be a named pipe by now, opening it must not wait. */
        .flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, fast.home_fd, grant->path, &how, sizeof how);
    if (fd >= 0 && !is_granted_version(grant, fd)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool answer_open(const struct request *request)
{
    const struct grant *grant = find_grant(request->header.nodeid);
    uint32_t thread = request->header.pid;
    if (grant == NULL || grant->is_directory || request->in.open.flags & (O_ACCMODE | O_TRUNC) || !is_admitted(thread))
        return false;
    if (grant->is_noted && fast.noted == MAX_NOTES)
        return false;
    int64_t opened_ns = clock_ns(CLOCK_REALTIME); /* what changes later, the opener has not seen */
    int fd = open_version(grant);
    if (fd < 0)
        return false;
    if (!add_file(fd, grant->node, grant->size, thread)) {
        close(fd);
        return false;
    }
    struct fuse_open_out out = {
        .fh = FAST_HANDLE + (uint64_t)fd,
        .open_flags = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH,
    };
    if (!reply(request, 0, &out, sizeof out)) {
        close_file(&fast.files[fd]); /* no RELEASE will come */
        return true;
    }
    /* Requests that follow from this open are received later, by this thread. */
    if (grant->is_noted)
        fast.notes[fast.noted++] = (struct note){thread, grant->node, opened_ns};
    fast.opens++;
    return true;
}

static bool is_probed(const char *name)
{
    for (size_t i = 0; i < PROBED; i++)
        if (strcmp(name, probed_names[i]) == 0)
            return true;
    return false;
}

/* Whether a directory is where it was granted, and has no entry of this name. */
static bool is_absent(const struct grant *grant, const char *name)
{
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    struct stat info;
    int fd = (int)syscall(SYS_openat2, fast.home_fd, grant->path, &how, sizeof how);
    if (fd < 0)
        return false;
    bool absent = fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    close(fd);
    return absent;
}

static bool answer_lookup(const struct request *request)
{
    const struct grant *grant = is_probed(request->name) ? find_grant(request->header.nodeid) : NULL;
    if (grant == NULL || !grant->is_directory || !is_absent(grant, request->name))
        return false;
    struct fuse_entry_out none = {.entry_valid = ABSENT_S}; /* node 0: there is no such name */
    fast.lookups++;
    reply(request, 0, &none, sizeof none);
    return true;
}

static bool answer_read(const struct request *request)
{
    struct open_file *file = find_file(request->in.read.fh);
    if (file == NULL || request->in.read.size > MAX_READ)
        return false;
    uint64_t offset = request->in.read.offset, end = (uint64_t)file->size;
    size_t wanted = request->in.read.size, done = 0;
    if (offset >= end)
        wanted = 0;
    else if (wanted > end - offset)
        wanted = end - offset;
    while (done < wanted) {
        ssize_t got = pread(fd_of(file), fast.read_buffer + done, wanted - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            reply(request, errno, NULL, 0);
            return true;
        }
        if (got == 0)
            break;
        done += (size_t)got;
    }
    fast.reads++;
    reply(request, 0, fast.read_buffer, done);
    return true;
}

static bool answer_release(const struct request *request)
{
    struct open_file *file = find_file(request->in.release.fh);
    if (file == NULL)
        return false;
    close_file(file);
    fast.releases++;
    reply(request, 0, NULL, 0);
    return true;
}

/* The end of a listing, which every reader of a directory asks for once more. */
static bool answer_end(const struct request *request)
{
    if (!fast.caches_dirs || request->in.read.fh != 0 || !(request->in.read.offset & LAST_POSITION))
        return false;
    reply(request, 0, NULL, 0);
    return true;
}

/* Put the node in place of the handle that a directory opened by the kernel itself has not. */
static void name_directory(const struct request *request, void *data)
{
    uint64_t handle = NODE_HANDLE | request->header.nodeid;
    /* `fh` is the first member of fuse_read_in and of fuse_fsync_in. */
    if (fast.caches_dirs && request->in.read.fh == 0)
        memcpy((char *)data + sizeof request->header, &handle, sizeof handle);
    fast.lister = request->header.pid;
    fast.lister_uid = request->header.uid;
}

/* Answer a request. False: libfuse has to process it. */
static bool answer(void *data, size_t size)
{
    struct request request;
    if (!parse(data, size, &request))
        return false;
    switch (request.header.opcode) {
    case FUSE_LOOKUP: return answer_lookup(&request);
    case FUSE_OPEN: return answer_open(&request);
    case FUSE_READ: return answer_read(&request);
    case FUSE_RELEASE: return answer_release(&request);
    case FUSE_FLUSH: return find_file(request.in.flush.fh) != NULL && (reply(&request, 0, NULL, 0), true);
    case FUSE_OPENDIR: return fast.caches_dirs && (reply(&request, ENOSYS, NULL, 0), true);
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
        if (answer_end(&request))
            return true;
        /* fall through */
    case FUSE_FSYNCDIR: name_directory(&request, data); return false;
    case FUSE_INIT:
        fast.caches_dirs = fast.wants_dirs && request.in.init.flags & FUSE_NO_OPENDIR_SUPPORT;
        return false;
    default: return false;
    }
}

/* -- receiving --------------------------------------------------------------------------------- */

/* The session of this mount: the first one that receives after start(). */
static bool serves(struct fuse_session *session)
{
    if (!fast.is_armed || !pthread_equal(fast.thread, pthread_self()))
        return false;
    int fd = fuse_session_fd(session);
    if (!fast.is_bound) {
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
            return false;
        fast.fd = fd;
        fast.is_bound = true;
    }
    return fd == fast.fd;
}

static bool has_request(long wait_ns)
{
    struct pollfd waiting = {.fd = fast.fd, .events = POLLIN};
    struct timespec wait = {.tv_nsec = wait_ns};
    return ppoll(&waiting, 1, &wait, NULL) > 0;
}

static bool spin(void)
{
    int64_t until_ns = now_ns() + SPIN_NS;
    while (now_ns() < until_ns)
        if (has_request(0))
            return now_ns() < until_ns; /* later: other programs needed this CPU meanwhile */
    return false;
}

/* Waking a CPU that sleeps takes longer than an answer, and `grep -r` sends its next request about
 * 20 us after the last answer. So this thread looks for it before it sleeps, which takes a third off
 * the time of such a program. Where that is in vain, because the program computes for longer or
 * needs this CPU to go on, it soon stops looking and tries again much later. */
static bool next_comes_soon(void)
{
    if (has_request(0))
        return true; /* it was there already: says nothing about spinning */
    if (fast.spin_pause > 0) {
        fast.spin_pause--;
        return has_request(GRACE_NS);
    }
    if (spin()) {
        fast.failed_spins = 0;
        return true;
    }
    fast.vain_spins++;
    if (++fast.failed_spins == MAX_FAILED_SPINS) {
        fast.failed_spins = 0;
        fast.spin_pause = SPIN_PAUSE;
    }
    return has_request(GRACE_NS);
}

/* Whether Python has to run now: this request was answered, and it asked for the end of a listing. */
static bool has_pause(const void *data)
{
    struct fuse_in_header header;
    memcpy(&header, data, sizeof header);
    if (!fast.pauses_after_end || (header.opcode != FUSE_READDIRPLUS && header.opcode != FUSE_READDIR))
        return false;
    fast.pauses_after_end = false;
    return true;
}

/* Receive a request that libfuse has to process. -EINTR: there is none now. */
int fuse_session_receive_buf(struct fuse_session *session, struct fuse_buf *buffer)
{
    if (!serves(session))
        return real_receive(session, buffer);
    PyThreadState *released = NULL;
    int64_t turn_ends = now_ns() + TURN_NS;
    int size;
    if (fast.pauses_after_end) {
        if (PyGILState_Check())
            released = PyEval_SaveThread();
        fast.pauses_after_end = next_comes_soon(); /* otherwise the program does not ask for the end */
    }
    for (;;) {
        size = real_receive(session, buffer);
        if (size <= 0 || buffer->flags & FUSE_BUF_IS_FD || !answer(buffer->mem, (size_t)size))
            break;
        size = -EINTR;
        if (has_pause(buffer->mem))
            break;
        if (released == NULL && PyGILState_Check())
            released = PyEval_SaveThread();
        if (now_ns() > turn_ends || !next_comes_soon())
            break;
    }
    if (released != NULL)
        PyEval_RestoreThread(released);
    return size == -EAGAIN ? -EINTR : size;
}

/* -- for Python -------------------------------------------------------------------------------- */

static bool is_node(unsigned long long number)
{
    return number != 0 && !(number & NODE_HANDLE);
}

static bool in_serving_thread(void)
{
    if (fast.is_armed && pthread_equal(fast.thread, pthread_self()))
        return true;
    PyErr_SetString(PyExc_RuntimeError, "call this between start() and stop(), in the thread that called start()");
    return false;
}

static int count_libfuse(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    const char *name = strrchr(info->dlpi_name, '/');
    *(int *)count += strncmp(name ? name + 1 : info->dlpi_name, "libfuse3", 8) == 0;
    return 0;
}

PyDoc_STRVAR(start_doc, "start(home_fd, directories)\n--\n\n"
                        "Serve the next session that this thread receives from.\n\n"
                        "Raises OSError if that is impossible, for example with two copies of libfuse.");

static PyObject *fast_start(PyObject *module, PyObject *arguments)
{
    (void)module;
    int home_fd, wants_dirs, copies = 0;
    if (!PyArg_ParseTuple(arguments, "ip:start", &home_fd, &wants_dirs))
        return NULL;
    dl_iterate_phdr(count_libfuse, &copies);
    if (fast.is_armed || real_receive == NULL || copies != 1) {
        errno = fast.is_armed ? EBUSY : ENOTSUP;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    int home = fcntl(home_fd, F_DUPFD_CLOEXEC, 0);
    char *read_buffer = malloc(MAX_READ);
    if (home < 0 || read_buffer == NULL) {
        free(read_buffer);
        if (home >= 0)
            close(home);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    fast.home_fd = home;
    fast.read_buffer = read_buffer;
    fast.wants_dirs = wants_dirs;
    fast.thread = pthread_self();
    fast.is_armed = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stop_doc, "stop()\n--\n\nClose all files and forget all grants, after the session has ended.");

static PyObject *fast_stop(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (!in_serving_thread())
        return NULL;
    for (size_t fd = 0; fd < fast.files_size; fd++)
        if (fast.files[fd].node != 0)
            close((int)fd);
    for (size_t i = 0; i < fast.capacity; i++)
        free(fast.grants[i].path);
    close(fast.home_fd);
    free(fast.files);
    free(fast.grants);
    free(fast.read_buffer);
    memset(&fast, 0, sizeof fast);
    fast.fd = fast.home_fd = -1;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(grant_doc, "grant(node, path, inode, size, mtime_ns, ctime_ns, noted)\n--\n\n"
                        "Answer opens of a node while the file at this path is this version.\n\n"
                        "With `noted` drain() reports who opened it.");

static PyObject *fast_grant(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long node, inode;
    long long size, mtime_ns, ctime_ns;
    const char *path;
    Py_ssize_t length;
    int is_noted;
    if (!PyArg_ParseTuple(arguments, "Ky#KLLLp:grant", &node, &path, &length, &inode, &size, &mtime_ns, &ctime_ns,
                          &is_noted) ||
        !in_serving_thread())
        return NULL;
    if (!is_node(node) || size < 0 || length >= MAX_PATH || strlen(path) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "not a node, size or path");
        return NULL;
    }
    struct grant version = {node, inode, size, mtime_ns, ctime_ns, NULL, is_noted, false};
    return add_grant(&version, path) ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

PyDoc_STRVAR(grant_directory_doc, "grant_directory(node, path)\n--\n\n"
                                  "Answer lookups of PROBED_NAMES in a directory while they do not exist.");

static PyObject *fast_grant_directory(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned long long node;
    const char *path;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(arguments, "Ky#:grant_directory", &node, &path, &length) || !in_serving_thread())
        return NULL;
    if (!is_node(node) || length >= MAX_PATH || strlen(path) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "not a node or path");
        return NULL;
    }
    struct grant directory = {.node = node, .is_directory = true};
    return add_grant(&directory, path) ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

PyDoc_STRVAR(revoke_doc, "revoke(node)\n--\n\nLeave opens of a node to Python. Returns whether it was granted.");

static PyObject *fast_revoke(PyObject *module, PyObject *argument)
{
    (void)module;
    unsigned long long node = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || !in_serving_thread())
        return NULL;
    return PyBool_FromLong(remove_grant(node));
}

PyDoc_STRVAR(admit_doc, "admit(thread, duration_ns)\n--\n\nAnswer opens by a thread for this long.");

static PyObject *fast_admit(PyObject *module, PyObject *arguments)
{
    (void)module;
    unsigned int thread;
    long long duration_ns;
    if (!PyArg_ParseTuple(arguments, "IL:admit", &thread, &duration_ns) || !in_serving_thread())
        return NULL;
    *caller_slot(thread) = (struct caller){thread, now_ns() + duration_ns};
    Py_RETURN_NONE;
}

PyDoc_STRVAR(dismiss_doc, "dismiss()\n--\n\nLeave the next open of each thread to Python.");

static PyObject *fast_dismiss(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (!in_serving_thread())
        return NULL;
    memset(fast.callers, 0, sizeof fast.callers);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(drain_doc, "drain()\n--\n\n"
                        "Noted opens since the last call, in order: (thread, path, (inode, size, mtime_ns, ctime_ns), time_ns).\n\n"
                        "Call it before a node is revoked or granted again.");

/* Append to a list what a function made, and give up the reference. */
static bool append_new(PyObject *list, PyObject *item)
{
    bool is_done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_done;
}

static PyObject *fast_drain(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (!in_serving_thread())
        return NULL;
    PyObject *opens = PyList_New(0);
    for (size_t i = 0; opens != NULL && i < fast.noted; i++) {
        const struct grant *grant = find_grant(fast.notes[i].node);
        if (grant != NULL &&
            !append_new(opens, Py_BuildValue("Iy(KLLL)L", fast.notes[i].thread, grant->path,
                                             (unsigned long long)grant->inode, (long long)grant->size,
                                             (long long)grant->mtime_ns, (long long)grant->ctime_ns,
                                             (long long)fast.notes[i].opened_ns)))
            Py_CLEAR(opens);
    }
    if (opens != NULL)
        fast.noted = 0;
    return opens;
}

static PyObject *describe(const struct open_file *file)
{
    return Py_BuildValue("IKiL", file->thread, (unsigned long long)file->node, fd_of(file), (long long)file->size);
}

PyDoc_STRVAR(opened_doc, "opened(handle)\n--\n\n"
                         "(thread, node, descriptor, size) of a handle given out here, or None.");

static PyObject *fast_opened(PyObject *module, PyObject *argument)
{
    (void)module;
    unsigned long long handle = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || !in_serving_thread())
        return NULL;
    const struct open_file *file = find_file(handle);
    if (file == NULL)
        Py_RETURN_NONE;
    return describe(file);
}

PyDoc_STRVAR(open_files_doc, "open_files()\n--\n\n(thread, node, descriptor, size) of each open file.");

static PyObject *fast_open_files(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (!in_serving_thread())
        return NULL;
    PyObject *files = PyList_New(0);
    for (size_t fd = 0; files != NULL && fd < fast.files_size; fd++) {
        if (fast.files[fd].node != 0 && !append_new(files, describe(&fast.files[fd])))
            Py_CLEAR(files);
    }
    return files;
}

PyDoc_STRVAR(lister_doc, "lister()\n--\n\n"
                         "Thread and user whose READDIR is being processed. pyfuse3 does not pass them on.");

static PyObject *fast_lister(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return in_serving_thread() ? Py_BuildValue("II", fast.lister, fast.lister_uid) : NULL;
}

PyDoc_STRVAR(pause_after_end_doc, "pause_after_end()\n--\n\n"
                                  "Wait for a request for the end of a listing, and return to Python when it is answered.\n\n"
                                  "The program is busy with the names then, and Python works ahead.");

static PyObject *fast_pause_after_end(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    if (!in_serving_thread())
        return NULL;
    fast.pauses_after_end = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(state_doc, "state()\n--\n\nWhether requests arrive here, whether directories are cached, and counters.");

static PyObject *fast_state(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return Py_BuildValue("{s:O,s:O,s:n,s:K,s:K,s:K,s:K,s:K}", "bound", fast.is_bound ? Py_True : Py_False, "directories",
                         fast.caches_dirs ? Py_True : Py_False, "grants", (Py_ssize_t)fast.granted, "lookups",
                         (unsigned long long)fast.lookups, "opens", (unsigned long long)fast.opens, "reads", (unsigned long long)fast.reads, "releases",
                         (unsigned long long)fast.releases, "vain_spins", (unsigned long long)fast.vain_spins);
}

/* -- listing a directory ----------------------------------------------------------------------- */

struct scanned {
    const char *name;
    struct stat info;
};

/* From getdents64(2); glibc declares it under another name. */
struct directory_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* Read the names in a directory with one call. -1: there are more, or an error. */
static ssize_t read_names(int fd, char *buffer, size_t size)
{
    char rest[512];
    ssize_t length = syscall(SYS_getdents64, fd, buffer, size);
    return length < 0 || syscall(SYS_getdents64, fd, rest, sizeof rest) != 0 ? -1 : length;
}

/* Stat what read_names() found. Returns how many exist; -1: too many, or an error. */
static int stat_names(int fd, const char *buffer, ssize_t length, struct scanned *found)
{
    int count = 0;
    for (ssize_t at = 0; at < length;) {
        const struct directory_entry *entry = (const struct directory_entry *)(buffer + at);
        at += entry->size;
        if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
            continue;
        if (count == MAX_SCANNED)
            return -1;
        found[count].name = entry->name;
        if (fstatat(fd, entry->name, &found[count].info, AT_SYMLINK_NOFOLLOW) == 0)
            count++;
        else if (errno != ENOENT) /* deleted meanwhile */
            return -1;
    }
    return count;
}

static int scan_directory(const char *path, char *buffer, size_t size, struct scanned *found)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, fast.home_fd, path, &how, sizeof how);
    if (fd < 0)
        return -1;
    ssize_t length = read_names(fd, buffer, size);
    int count = length < 0 ? -1 : stat_names(fd, buffer, length, found);
    close(fd);
    return count;
}

static double in_s(struct timespec time)
{
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* (name, os.stat_result). */
static PyObject *describe_scanned(const struct scanned *found)
{
    const struct stat *info = &found->info;
    PyObject *fields = Py_BuildValue(
        "IKKKIILLLLdddLLLLLK", info->st_mode, (unsigned long long)info->st_ino, (unsigned long long)info->st_dev,
        (unsigned long long)info->st_nlink, info->st_uid, info->st_gid, (long long)info->st_size,
        (long long)info->st_atim.tv_sec, (long long)info->st_mtim.tv_sec, (long long)info->st_ctim.tv_sec,
        in_s(info->st_atim), in_s(info->st_mtim), in_s(info->st_ctim), (long long)in_ns(info->st_atim),
        (long long)in_ns(info->st_mtim), (long long)in_ns(info->st_ctim), (long long)info->st_blksize,
        (long long)info->st_blocks, (unsigned long long)info->st_rdev);
    PyObject *result = fields != NULL ? PyObject_CallOneArg(stat_result, fields) : NULL;
    PyObject *name = PyUnicode_DecodeFSDefault(found->name);
    PyObject *pair = result != NULL && name != NULL ? PyTuple_Pack(2, name, result) : NULL;
    Py_XDECREF(fields);
    Py_XDECREF(result);
    Py_XDECREF(name);
    return pair;
}

PyDoc_STRVAR(scan_doc, "scan(path)\n--\n\n"
                       "The names in a directory below the home, with their os.stat_result.\n\n"
                       "None if the directory is large, missing or cannot be read.");

static PyObject *fast_scan(PyObject *module, PyObject *argument)
{
    (void)module;
    static _Alignas(8) char buffer[SCAN_BYTES];
    static struct scanned found[MAX_SCANNED];
    const char *path = PyBytes_AsString(argument);
    if (path == NULL || !in_serving_thread())
        return NULL;
    int count;
    Py_BEGIN_ALLOW_THREADS
    count = scan_directory(path, buffer, sizeof buffer, found);
    Py_END_ALLOW_THREADS
    if (count < 0)
        Py_RETURN_NONE;
    PyObject *pairs = PyList_New(count);
    for (int i = 0; pairs != NULL && i < count; i++) {
        PyObject *pair = describe_scanned(&found[i]);
        if (pair == NULL)
            Py_CLEAR(pairs);
        else
            PyList_SET_ITEM(pairs, i, pair);
    }
    return pairs;
}

/* -- reading ahead: in any thread, without the state above -------------------------------------- */

/* Let the kernel read a directory, the inodes in it, small files with `contents`, and the directories below it, as far
 * as `depth` and the number of names `left` allow. Closes `fd`. Errors do not matter. */
static void prefetch_below(int fd, bool contents, int depth, int *left)
{
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct dirent *entry;
    while (*left > 0 && (entry = readdir(directory)) != NULL) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        (*left)--;
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(info.st_mode) && depth > 0) {
            int below = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            prefetch_below(below, contents, depth - 1, left);
        } else if (contents && S_ISREG(info.st_mode) && info.st_size <= MAX_PREFETCH) {
            int file = openat(fd, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (file >= 0) {
                posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
                close(file);
            }
        }
    }
    closedir(directory);
}

static void prefetch_directory(int home_fd, const char *path, bool contents)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int left = PREFETCH_NAMES;
    prefetch_below((int)syscall(SYS_openat2, home_fd, path, &how, sizeof how), contents, PREFETCH_DEPTH, &left);
}

PyDoc_STRVAR(prefetch_doc, "prefetch(home, paths, contents)\n--\n\n"
                           "Read directories below `home`, and small files in them, into the kernel's caches.");

static PyObject *fast_prefetch(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *home;
    PyObject *paths; /* a tuple: nobody can change it while the GIL is released */
    int contents;
    if (!PyArg_ParseTuple(arguments, "yO!p:prefetch", &home, &PyTuple_Type, &paths, &contents))
        return NULL;
    Py_ssize_t number = PyTuple_GET_SIZE(paths);
    for (Py_ssize_t i = 0; i < number; i++) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(paths, i))) {
            PyErr_SetString(PyExc_TypeError, "paths are bytes");
            return NULL;
        }
    }
    Py_BEGIN_ALLOW_THREADS
    int home_fd = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (Py_ssize_t i = 0; home_fd >= 0 && i < number; i++)
        prefetch_directory(home_fd, PyBytes_AS_STRING(PyTuple_GET_ITEM(paths, i)), contents != 0);
    if (home_fd >= 0)
        close(home_fd);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyDoc_STRVAR(parse_doc, "parse(data)\n--\n\nThe (opcode, node) of a request this module understands, or None. For tests.");

static PyObject *fast_parse(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct request request;
    const char *data;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "y#:parse", &data, &size))
        return NULL;
    if (!parse(data, (size_t)size, &request))
        Py_RETURN_NONE;
    return Py_BuildValue("IK", request.header.opcode, (unsigned long long)request.header.nodeid);
}

static PyMethodDef methods[] = {
    {"start", fast_start, METH_VARARGS, start_doc},
    {"stop", fast_stop, METH_NOARGS, stop_doc},
    {"grant", fast_grant, METH_VARARGS, grant_doc},
    {"grant_directory", fast_grant_directory, METH_VARARGS, grant_directory_doc},
    {"revoke", fast_revoke, METH_O, revoke_doc},
    {"admit", fast_admit, METH_VARARGS, admit_doc},
    {"dismiss", fast_dismiss, METH_NOARGS, dismiss_doc},
    {"drain", fast_drain, METH_NOARGS, drain_doc},
    {"opened", fast_opened, METH_O, opened_doc},
    {"open_files", fast_open_files, METH_NOARGS, open_files_doc},
    {"lister", fast_lister, METH_NOARGS, lister_doc},
    {"pause_after_end", fast_pause_after_end, METH_NOARGS, pause_after_end_doc},
    {"scan", fast_scan, METH_O, scan_doc},
    {"state", fast_state, METH_NOARGS, state_doc},
    {"parse", fast_parse, METH_VARARGS, parse_doc},
    {"prefetch", fast_prefetch, METH_VARARGS, prefetch_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fusefs._fast",
    .m_doc = "Answers FUSE requests that need no decision, before they reach Python.",
    .m_size = -1,
    .m_methods = methods,
};

/* A forked child must not touch the session: its requests belong to the parent. */
static void disarm_child(void)
{
    fast.is_armed = false;
}

static PyObject *list_probed_names(void)
{
    PyObject *names = PyTuple_New(PROBED);
    for (size_t i = 0; names != NULL && i < PROBED; i++) {
        PyObject *name = PyUnicode_FromString(probed_names[i]);
        if (name == NULL)
            Py_CLEAR(names);
        else
            PyTuple_SET_ITEM(names, (Py_ssize_t)i, name);
    }
    return names;
}

PyMODINIT_FUNC PyInit__fast(void)
{
    real_receive = (int (*)(struct fuse_session *, struct fuse_buf *))dlsym(RTLD_NEXT, "fuse_session_receive_buf");
    pthread_atfork(NULL, NULL, disarm_child);
    PyObject *os = PyImport_ImportModule("os");
    stat_result = os != NULL ? PyObject_GetAttrString(os, "stat_result") : NULL;
    Py_XDECREF(os);
    if (stat_result == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (PyModule_AddObject(module, "PROBED_NAMES", list_probed_names()) < 0 ||
                           PyModule_AddObject(module, "FAST_HANDLE", PyLong_FromUnsignedLongLong(FAST_HANDLE)) < 0 ||
                           PyModule_AddObject(module, "NODE_HANDLE", PyLong_FromUnsignedLongLong(NODE_HANDLE)) < 0 ||
                           PyModule_AddIntConstant(module, "LAST_POSITION", LAST_POSITION) < 0)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
