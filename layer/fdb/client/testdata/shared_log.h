/*
 * A log that processes append to and follow, in a file that all of them map: the shared store of the fake library.
 *
 * Nobody holds a lock, so processes may be killed and stopped anywhere. A record is written where nobody looks yet, and becomes a part of the
 * log when the last record's next is set to it, which is one compare-and-swap: who loses reads what came before, and tries again. Records lie at
 * offsets that increase. Now and then a process writes a snapshot of what the log amounts to, and gives back the memory of what lies before the snapshot
 * that was valid until then. Who has not read so far finds that out, since "dropped" is raised before anything is given back.
 *
 * A file of zeros is an empty log. It is named like the cluster file, with ".store" at the end, and lives as long as somebody leaves it there.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LOG_LINES = 64, LOG_SILENT = 0xffff }; /* where the delays of processes begin in the file; see fdbtest.Line */
enum { LOG_FIRST = 4096, LOG_PAGE = 4096 };
#ifndef LOG_SNAPSHOT_BYTES
#define LOG_SNAPSHOT_BYTES (16 << 20) /* of the log, between snapshots */
#endif
#define LOG_SIZE ((uint64_t)64 << 30) /* of the file and of the mapping; only what is written takes memory */

typedef struct {
	uint64_t allocated; /* bytes behind the first record */
	uint64_t snapshot;  /* offset of the newest one; 0: none yet */
	uint64_t dropped;   /* what lies before this offset may be gone */
} LogHeader;

typedef struct {
	uint64_t next; /* offset; 0: this is the last record */
	int64_t version;
	uint64_t bytes; /* that follow */
} LogRecord;

typedef struct {
	uint64_t at; /* the record up to which it holds */
	int64_t version;
	uint64_t bytes;
} LogSnapshot;

typedef struct {
	int fd;
	uint8_t* base;
	uint16_t* delay; /* of this process */
	uint64_t at;     /* the record that was read last */
} SharedLog;

static LogHeader* log_header(SharedLog* l) { return (LogHeader*)l->base; }
static LogRecord* log_record(SharedLog* l, uint64_t offset) { return (LogRecord*)(l->base + offset); }
static uint64_t log_load(uint64_t* p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }

static int log_swap(uint64_t* p, uint64_t from, uint64_t to) {
	return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static SharedLog* log_open(const char* cluster_file) {
	SharedLog* l = calloc(1, sizeof *l);
	char path[4096];
	snprintf(path, sizeof path, "%s.store", cluster_file);
	l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (l->fd < 0 || ftruncate(l->fd, (off_t)LOG_SIZE) != 0) {
		perror(path);
		abort();
	}
	l->base = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, l->fd, 0);
	if (l->base == MAP_FAILED) {
		perror(path);
		abort();
	}
	madvise(l->base, LOG_SIZE, MADV_DONTDUMP);
	l->at = LOG_FIRST;
	const char* line = getenv("FAKE_FDB_LINE");
	int n = line != NULL ? atoi(line) : 0;
	if (n < 0 || LOG_LINES + 2 * (n + 1) > LOG_FIRST)
		abort();
	l->delay = (uint16_t*)(l->base + LOG_LINES) + n;
	return l;
}

/* log_delay is how long the store takes to answer this process, milliseconds; LOG_SILENT: it does not. */
static int log_delay(SharedLog* l) { return __atomic_load_n(l->delay, __ATOMIC_RELAXED); }

static uint64_t log_allocate(SharedLog* l, uint64_t bytes) {
	uint64_t offset = LOG_FIRST + sizeof(LogRecord) + __atomic_fetch_add(&log_header(l)->allocated, (bytes + 7) & ~(uint64_t)7, __ATOMIC_SEQ_CST);
	if (offset + bytes > LOG_SIZE) {
		fprintf(stderr, "the shared store of the fake libfdb_c is full\n");
		abort();
	}
	return offset;
}

enum { LOG_END, LOG_RECORD, LOG_BEHIND };

/* log_next reads the next record, a copy. LOG_BEHIND: it is gone, read the snapshot. */
static int log_next(SharedLog* l, int64_t* version, uint8_t** body, int* n) {
	uint64_t next = log_load(&log_record(l, l->at)->next);
	if (next != 0) {
		LogRecord* r = log_record(l, next);
		*version = r->version;
		*n = (int)r->bytes;
		*body = malloc((size_t)*n + 1);
		if (*body == NULL)
			abort();
		memcpy(*body, r + 1, (size_t)*n);
	}
	if (log_load(&log_header(l)->dropped) > l->at) {
		if (next != 0)
			free(*body);
		return LOG_BEHIND;
	}
	if (next == 0)
		return LOG_END;
	l->at = next;
	return LOG_RECORD;
}

enum { LOG_APPENDED, LOG_OVERTAKEN, LOG_UNKNOWN };

/* log_append makes a record the next one after that which was read last. LOG_OVERTAKEN: there is one already. LOG_UNKNOWN: so much was appended meanwhile
 * that nothing tells whether this was, too. *record is 0 at first, and kept between tries. */
static int log_append(SharedLog* l, uint64_t* record, int64_t version, const uint8_t* body, int n) {
	if (*record <= l->at) {
		*record = log_allocate(l, sizeof(LogRecord) + (uint64_t)n);
		log_record(l, *record)->bytes = (uint64_t)n;
		if (n > 0)
			memcpy(log_record(l, *record) + 1, body, (size_t)n);
	}
	log_record(l, *record)->version = version;
	if (!log_swap(&log_record(l, l->at)->next, 0, *record))
		return LOG_OVERTAKEN;
	/* What is dropped reads as zeros: there the swap succeeds, and nobody will see it. */
	return log_load(&log_header(l)->dropped) <= l->at ? LOG_APPENDED : LOG_UNKNOWN;
}

/* log_read_snapshot gives a copy of the newest snapshot; reading goes on after it. */
static uint8_t* log_read_snapshot(SharedLog* l, int64_t* version, int* n) {
	for (;;) {
		LogSnapshot* s = (LogSnapshot*)(l->base + log_load(&log_header(l)->snapshot));
		uint64_t at = s->at;
		*version = s->version;
		*n = (int)s->bytes;
		uint8_t* body = malloc((size_t)*n + 1);
		if (body == NULL)
			abort();
		memcpy(body, s + 1, (size_t)*n);
		if (log_load(&log_header(l)->dropped) <= at) {
			l->at = at;
			return body;
		}
		free(body);
	}
}

/* log_wants_snapshot tells whether the log has become long, measured by what it amounts to. */
static int log_wants_snapshot(SharedLog* l) {
	uint64_t snapshot = log_load(&log_header(l)->snapshot), bytes = 0;
	if (snapshot != 0)
		bytes = ((LogSnapshot*)(l->base + snapshot))->bytes;
	return log_load(&log_header(l)->allocated) > snapshot + LOG_SNAPSHOT_BYTES + 2 * bytes;
}

/* log_drop gives back what lies before a record. */
static void log_drop(SharedLog* l, uint64_t before) {
	uint64_t from = log_load(&log_header(l)->dropped);
	while (from < before && !log_swap(&log_header(l)->dropped, from, before))
		from = log_load(&log_header(l)->dropped);
	if (from >= before)
		return;
#ifdef FALLOC_FL_PUNCH_HOLE
	uint64_t first = from / LOG_PAGE * LOG_PAGE, last = before / LOG_PAGE * LOG_PAGE;
	if (first < LOG_PAGE)
		first = LOG_PAGE; /* the header stays */
	if (first < last)
		(void)!fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)(last - first));
#endif
}

/* log_write_snapshot publishes what the records up to the one that was read last amount to. */
static void log_write_snapshot(SharedLog* l, int64_t version, const uint8_t* body, int n) {
	uint64_t old = log_load(&log_header(l)->snapshot);
	uint64_t old_at = old == 0 ? 0 : ((LogSnapshot*)(l->base + old))->at;
	if (old_at >= l->at)
		return; /* somebody who has read more was faster */
	uint64_t offset = log_allocate(l, sizeof(LogSnapshot) + (uint64_t)n);
	LogSnapshot* s = (LogSnapshot*)(l->base + offset);
	*s = (LogSnapshot){ l->at, version, (uint64_t)n };
	if (n > 0)
		memcpy(s + 1, body, (size_t)n);
	if (log_swap(&log_header(l)->snapshot, old, offset) && old != 0)
		log_drop(l, old_at);
}
