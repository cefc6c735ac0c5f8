/*
 * A libfdb_c for tests: the functions of functions.h over an in-memory store, one per cluster file path. When the description in the cluster
 * file is "shared", processes share the store: each has a replica that follows a log in a file beside the cluster file (shared_log.h).
 *
 * It has what the engine relies on: futures that a network thread completes, callbacks, snapshots, reads of one's own
 * writes, conflict detection, versionstamps, atomic addition, watches, batches, cancelled and timed-out work. It is not
 * FoundationDB: one mutex guards everything in a process, and a commit takes effect at once.
 *
 * The database option machine_id takes commands, so that tests reach them through the Go binding:
 *   fault POINT CODE COUNT   the next COUNT operations at POINT fail with CODE. POINT is grv, read, commit (not applied),
 *                            committed (applied), or backoff
 *   hang POINT 0|1           operations at POINT (grv, read, commit, backoff) stay pending until 0
 *   lock 0|1                 the database is locked
 *   connected 0|1            a multi-version client that does not know the cluster's version yet: transactions made meanwhile are
 *                            hollow. Nothing but a reset ends what waits on them; connecting does so with 1039
 *   advance VERSIONS         versions pass; not in a shared store
 * All of them act on the process only, even when the store is shared. A shared store can be made slow, or silent, for one process by a word in its
 * file (log_delay): the one that FAKE_FDB_LINE numbers in the process's environment.
 * The environment variable FAKE_FDB_COMMAND gives every store one command when it is made, for processes that tests start, and
 * FAKE_FDB_LATENCY_MICROS makes everything that would ask the cluster take so long.
 *
 * It lacks what the engine does not use (see optional in shim.c). Compiled with -DFAKE_MAX_API_VERSION=N it claims to be older, with -DFAKE_INCOMPLETE it lacks
 * a function that the engine does use.
 */
#define _GNU_SOURCE
#define VARVE_FDB_C_EXPORT
#include <foundationdb/fdb_c.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shared_log.h"

#ifndef FAKE_MAX_API_VERSION
#define FAKE_MAX_API_VERSION 730
#endif

enum { BATCH_ROWS = 40, LIFE_VERSIONS = 5000000, VERSION_STEP = 100, STAMP = 10 };
enum { IDLE_VERSIONS = 20000, POLL_NANOS = 1000000, SWEEP_ROWS = 1000 };
enum { PARK = -1, HOLD = -2 }; /* what a job returns that cannot finish now: try again after any command, or when enqueued */
enum { MODE_WANT_ALL = -2, MODE_ITERATOR = -1, MODE_EXACT = 0, MODE_SERIAL = 4 };
enum { MAX_KEY = 10000, MAX_VALUE = 100000 };
enum { OPTION_MACHINE_ID = 21, MUTATION_ADD = 2, MUTATION_STAMPED_KEY = 14, MUTATION_STAMPED_VALUE = 15 };

/* ---- bytes ---- */

typedef struct {
	uint8_t* p;
	int n;
} Bytes;

static void* grow(void* p, size_t size) {
	void* q = realloc(p, size ? size : 1);
	if (q == NULL)
		abort();
	return q;
}

static Bytes copy_bytes(const uint8_t* p, int n) {
	Bytes b = { grow(NULL, (size_t)n + 1), n };
	if (n > 0)
		memcpy(b.p, p, (size_t)n);
	b.p[n] = 0;
	return b;
}

static Bytes dup_bytes(Bytes b) { return copy_bytes(b.p, b.n); }

/* after is the key that follows k: the byte behind the end is a zero already. */
static Bytes after(Bytes k) {
	Bytes b = dup_bytes(k);
	b.n++;
	return b;
}

static int compare(Bytes a, Bytes b) {
	int n = a.n < b.n ? a.n : b.n;
	int c = n ? memcmp(a.p, b.p, (size_t)n) : 0;
	return c ? c : a.n - b.n;
}

static int equal(Bytes a, Bytes b) { return compare(a, b) == 0; }

typedef struct {
	Bytes begin, end;
} Span;

typedef struct {
	Span* at;
	int n, cap;
} Spans;

static void add_span(Spans* s, Bytes begin, Bytes end) {
	if (s->n == s->cap)
		s->at = grow(s->at, sizeof(Span) * (size_t)(s->cap = s->cap ? 2 * s->cap : 8));
	s->at[s->n++] = (Span){ begin, end };
}

static void free_spans(Spans* s) {
	for (int i = 0; i < s->n; i++) {
		free(s->at[i].begin.p);
		free(s->at[i].end.p);
	}
	free(s->at);
	*s = (Spans){ 0 };
}

static int inside(Bytes key, Span s) { return compare(s.begin, key) <= 0 && compare(key, s.end) < 0; }
static int overlap(Span a, Span b) { return compare(a.begin, b.end) < 0 && compare(b.begin, a.end) < 0; }

/* ---- the store ---- */

typedef struct {
	int64_t version;
	int present;
	Bytes value;
} Revision;

typedef struct {
	Bytes key;
	Revision* at;
	int n;
} Row;

typedef struct {
	int64_t version;
	Span span;
} Written;

enum { AT_GRV, AT_READ, AT_COMMIT, AT_COMMITTED, AT_BACKOFF, POINTS };
static const char* const point_names[POINTS] = { "grv", "read", "commit", "committed", "backoff" };

typedef struct Store {
	char* path;
	Row* rows; /* sorted */
	int n, cap;
	Written* log;
	int log_n, log_cap;
	int n_kept, log_kept;   /* after the last sweep */
	int64_t version, epoch; /* versions pass with time, a million a second, from epoch on */
	int64_t oldest;         /* what lies before it cannot be read any more */
	SharedLog* shared;      /* NULL: the store is the process's own */
	int silent;             /* the shared store was, when it was looked at last */
	int locked, disconnected;
	int fault_code[POINTS], fault_count[POINTS], hang[POINTS];
	FDBFuture* watches;
	struct Store* next;
} Store;

struct FDB_database {
	Store* store;
};

typedef enum { OP_SET, OP_CLEAR, OP_ADD, OP_STAMPED_KEY, OP_STAMPED_VALUE, OP_WRITTEN } OpType;

typedef struct {
	OpType type;
	Bytes a, b; /* key and value; begin and end of a clear, and of a span that only counts as written */
} Op;

struct FDB_transaction {
	int refs;
	Store* store;
	int64_t read_version; /* -1: not yet */
	Op* ops;
	int n, cap;
	Spans reads, writes;
	int cancelled, done, deferred;
	int hollow, committing; /* committing: from the commit to the next reset */
	int read_error;         /* of the first read that failed; a commit waits for all reads, and fails with it */
	int64_t committed_version;
	uint8_t stamp[STAMP];
	FDBFuture* pending; /* linked by sibling */
};

struct FDB_future {
	int refs, ready, queued, late, user_gone, error, doom;
	struct timespec due; /* when the network thread may take it */
	FDBTransaction* t;
	FDBFuture *next, *sibling, *next_watch;
	int (*job)(FDBFuture*);
	FDBCallback callback;
	void* parameter;
	/* arguments */
	Bytes key, end;
	int snapshot, reverse, limit, ops, code, wait_commit, watching, watch_present;
	int reads; /* a read, for which a commit waits */
	/* results */
	int64_t number;
	int present, more, rows;
	Bytes value;
	FDBKeyValue* kvs;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static void lock(void) { pthread_mutex_lock(&mu); }
static void unlock(void) { pthread_mutex_unlock(&mu); }
static Store* stores;
static FDBFuture *head, *tail, *parked;
static int api_version, is_set_up, is_stopped;
static long latency_nanos; /* set before the network thread runs */

static int find_row(Store* s, Bytes key, int* found) {
	int lo = 0, hi = s->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (compare(s->rows[mid].key, key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*found = lo < s->n && equal(s->rows[lo].key, key);
	return lo;
}

static Revision* revision_at(Row* r, int64_t version) {
	for (int i = r->n - 1; i >= 0; i--)
		if (r->at[i].version <= version)
			return r->at[i].present ? &r->at[i] : NULL;
	return NULL;
}

static Revision* look_up(Store* s, Bytes key, int64_t version) {
	int found, i = find_row(s, key, &found);
	return found ? revision_at(&s->rows[i], version) : NULL;
}

/* forget_old drops the revisions of a row that nobody can read any more. */
static void forget_old(Row* r, int64_t horizon) {
	int first = 0;
	while (first + 1 < r->n && r->at[first + 1].version <= horizon)
		first++;
	for (int i = 0; i < first; i++)
		free(r->at[i].value.p);
	memmove(r->at, r->at + first, sizeof(Revision) * (size_t)(r->n -= first));
}

static int is_dead(Row* r, int64_t horizon) { return r->n == 1 && !r->at[0].present && r->at[0].version <= horizon; }

static void free_row(Row* r) {
	for (int i = 0; i < r->n; i++)
		free(r->at[i].value.p);
	free(r->at);
	free(r->key.p);
}

/* sweep drops what only transactions that are too old would see, whenever there may be much of it. */
static void sweep(Store* s) {
	int64_t horizon = s->version - LIFE_VERSIONS;
	if (s->n > 2 * s->n_kept + SWEEP_ROWS) {
		int n = 0;
		for (int i = 0; i < s->n; i++) {
			forget_old(&s->rows[i], horizon);
			if (is_dead(&s->rows[i], horizon))
				free_row(&s->rows[i]);
			else
				s->rows[n++] = s->rows[i];
		}
		s->n = s->n_kept = n;
	}
	if (s->log_n > 2 * s->log_kept + SWEEP_ROWS) {
		int first = 0;
		for (; first < s->log_n && s->log[first].version <= horizon; first++) {
			free(s->log[first].span.begin.p);
			free(s->log[first].span.end.p);
		}
		memmove(s->log, s->log + first, sizeof(Written) * (size_t)(s->log_n -= first));
		s->log_kept = s->log_n;
	}
}

/* put takes over value. */
static void put(Store* s, Bytes key, int present, Bytes value, int64_t version) {
	int found, i = find_row(s, key, &found);
	if (!found) {
		if (s->n == s->cap)
			s->rows = grow(s->rows, sizeof(Row) * (size_t)(s->cap = s->cap ? 2 * s->cap : 64));
		memmove(&s->rows[i + 1], &s->rows[i], sizeof(Row) * (size_t)(s->n++ - i));
		s->rows[i] = (Row){ dup_bytes(key), NULL, 0 };
	}
	Row* r = &s->rows[i];
	forget_old(r, version - LIFE_VERSIONS);
	r->at = grow(r->at, sizeof(Revision) * (size_t)(r->n + 1));
	r->at[r->n++] = (Revision){ version, present, value };
}

static int64_t micros(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void tick_shared(Store* s);

/* tick lets versions pass that time has brought. */
static void tick(Store* s) {
	if (s->shared != NULL) {
		tick_shared(s);
		return;
	}
	int64_t now = micros() - s->epoch;
	if (s->version < now)
		s->version = now;
}

static int is_silent(Store* s) { return s->shared != NULL && log_delay(s->shared) == LOG_SILENT; }

/* delay_of is how long the store takes to answer, nanoseconds. */
static long delay_of(Store* s) {
	int millis = s->shared != NULL ? log_delay(s->shared) : 0;
	return latency_nanos + (millis == LOG_SILENT ? 0 : 1000000L * millis);
}

/* trip tells whether an operation at a point fails (code) or hangs (PARK). */
static int trip(Store* s, int point) {
	if (s->hang[point] || (is_silent(s) && (point == AT_GRV || point == AT_READ || point == AT_COMMIT)))
		return PARK;
	if (s->fault_count[point] > 0) {
		s->fault_count[point]--;
		return s->fault_code[point];
	}
	return 0;
}

/* ---- futures and the network thread, all under mu ---- */

static void unref_transaction(FDBTransaction* t);

static void unref(FDBFuture* f) {
	if (--f->refs > 0)
		return;
	free(f->key.p);
	free(f->end.p);
	free(f->value.p);
	for (int i = 0; i < f->rows; i++) {
		free((void*)f->kvs[i].key);
		free((void*)f->kvs[i].value);
	}
	free(f->kvs);
	if (f->t != NULL)
		unref_transaction(f->t);
	free(f);
}

static void enqueue(FDBFuture* f) {
	if (f->queued || f->ready)
		return;
	f->queued = 1;
	clock_gettime(CLOCK_REALTIME, &f->due);
	long delay = delay_of(f->t->store);
	f->late = delay > 0;
	f->due.tv_nsec += delay;
	f->due.tv_sec += f->due.tv_nsec / 1000000000;
	f->due.tv_nsec %= 1000000000;
	f->next = NULL;
	if (tail != NULL)
		tail->next = f;
	else
		head = f;
	tail = f;
	pthread_cond_broadcast(&wake);
}

static void enqueue_parked(void) {
	FDBFuture* f = parked;
	parked = NULL;
	while (f != NULL) {
		FDBFuture* next = f->next;
		f->queued = 0;
		enqueue(f);
		f = next;
	}
}

static void doom(FDBFuture* f, int code) {
	if (f->ready)
		return;
	if (f->doom == 0)
		f->doom = code;
	enqueue(f);
	enqueue_parked();
}

static int job_hollow(FDBFuture* f) { return f->t->store->disconnected ? PARK : 1039; }

static void abandon_pending(FDBTransaction* t, FDBFuture* except, int code) {
	for (FDBFuture* f = t->pending; f != NULL; f = f->sibling)
		if (f != except && !(f->watching && t->done))
			doom(f, code);
}

/* new_future has two references: the caller's, and one until it is ready. */
static FDBFuture* new_future(FDBTransaction* t, int (*job)(FDBFuture*)) {
	FDBFuture* f = calloc(1, sizeof *f);
	if (f == NULL)
		abort();
	f->refs = 2;
	f->job = job;
	if (t != NULL) {
		f->t = t;
		t->refs++;
		f->ops = t->n;
		f->sibling = t->pending;
		t->pending = f;
		if (t->hollow)
			f->job = job_hollow;
		else if (t->cancelled)
			f->doom = 1025;
	}
	return f;
}

/* new_use is new_future for what a transaction must not be used for while it commits. Doing so ends the commit, too. */
static FDBFuture* new_use(FDBTransaction* t, int (*job)(FDBFuture*)) {
	FDBFuture* f = new_future(t, job);
	if (t->committing && !t->hollow) {
		abandon_pending(t, NULL, 2017);
		f->doom = 2017;
	}
	return f;
}

static FDBFuture* start(FDBFuture* f) {
	enqueue(f);
	unlock();
	return f;
}

static void forget_watch(FDBFuture* f) {
	for (FDBFuture** p = &f->t->store->watches; *p != NULL; p = &(*p)->next_watch)
		if (*p == f) {
			*p = f->next_watch;
			return;
		}
}

static void complete(FDBFuture* f, int error) {
	f->error = error;
	f->ready = 1;
	if (f->reads && error != 0 && f->t->read_error == 0)
		f->t->read_error = error;
	if (f->reads)
		enqueue_parked(); /* a commit may wait for it */
	if (f->watching)
		forget_watch(f);
	if (f->t != NULL)
		for (FDBFuture** p = &f->t->pending; *p != NULL; p = &(*p)->sibling)
			if (*p == f) {
				*p = f->sibling;
				break;
			}
	FDBCallback callback = f->user_gone ? NULL : f->callback;
	void* parameter = f->parameter;
	if (callback != NULL) {
		unlock();
		callback(f, parameter);
		lock();
	}
	unref(f);
}

static void catch_up(Store* s);

/* await_work waits for a future, or for a moment when other processes may have written. */
static void await_work(void) {
	int shared = 0;
	for (Store* s = stores; s != NULL; s = s->next)
		shared |= s->shared != NULL;
	if (!shared) {
		pthread_cond_wait(&wake, &mu);
		return;
	}
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += POLL_NANOS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&wake, &mu, &until);
	for (Store* s = stores; s != NULL; s = s->next) {
		if (s->shared == NULL)
			continue;
		int was = s->silent;
		s->silent = is_silent(s);
		if (!s->silent)
			catch_up(s);
		if (was && !s->silent)
			enqueue_parked();
	}
}

fdb_error_t fdb_run_network(void) {
	lock();
	while (!is_stopped) {
		if (head == NULL) {
			await_work();
			continue;
		}
		FDBFuture* f = head;
		if (f->late && pthread_cond_timedwait(&wake, &mu, &f->due) != ETIMEDOUT)
			continue;
		head = f->next;
		if (head == NULL)
			tail = NULL;
		int error = f->doom ? f->doom : f->job(f);
		if (error == PARK) { /* stays queued, on the other list */
			f->next = parked;
			parked = f;
			continue;
		}
		f->queued = 0;
		if (error != HOLD)
			complete(f, error);
	}
	unlock();
	return 0;
}

fdb_error_t fdb_select_api_version_impl(int runtime, int header) {
	if (runtime > FAKE_MAX_API_VERSION || header > FAKE_MAX_API_VERSION)
		return 2203;
	if (api_version != 0)
		return 2201;
	api_version = runtime;
	return 0;
}

int fdb_get_max_api_version(void) { return FAKE_MAX_API_VERSION; }
const char* fdb_get_error(fdb_error_t code) { return code == 0 ? "Success" : "an error of the fake library"; }
const char* fdb_get_client_version(void) { return "7.3.0,fake,fdb00b073000000"; }

fdb_error_t fdb_network_set_option(FDBNetworkOption option, const uint8_t* value, int n) {
	(void)option, (void)value, (void)n;
	return is_set_up ? 2009 : 0;
}

fdb_error_t fdb_setup_network(void) {
	if (is_set_up)
		return 2009;
	const char* micros = getenv("FAKE_FDB_LATENCY_MICROS");
	latency_nanos = micros != NULL ? 1000 * atol(micros) : 0;
	is_set_up = 1;
	return 0;
}

fdb_error_t fdb_stop_network(void) {
	lock();
	is_stopped = 1;
	pthread_cond_broadcast(&wake);
	unlock();
	return 0;
}

/* ---- what callers do with futures ---- */

void fdb_future_destroy(FDBFuture* f) {
	lock();
	f->user_gone = 1;
	if (f->watching || f->wait_commit)
		doom(f, 1101);
	unref(f);
	unlock();
}

void fdb_future_cancel(FDBFuture* f) {
	lock();
	if (f->t == NULL || !f->t->hollow)
		doom(f, 1101);
	unlock();
}

void fdb_future_release_memory(FDBFuture* f) { (void)f; }

fdb_bool_t fdb_future_is_ready(FDBFuture* f) {
	lock();
	int ready = f->ready;
	unlock();
	return ready;
}

fdb_error_t fdb_future_set_callback(FDBFuture* f, FDBCallback callback, void* parameter) {
	lock();
	int ready = f->ready;
	if (!ready && f->callback != NULL)
		abort(); /* the engine never waits twice for one future */
	if (!ready) {
		f->callback = callback;
		f->parameter = parameter;
	}
	unlock();
	if (ready)
		callback(f, parameter);
	return 0;
}

fdb_error_t fdb_future_get_error(FDBFuture* f) {
	lock();
	int error = f->ready ? f->error : 2015;
	unlock();
	return error;
}

fdb_error_t fdb_future_get_int64(FDBFuture* f, int64_t* out) {
	*out = f->number;
	return fdb_future_get_error(f);
}

fdb_error_t fdb_future_get_key(FDBFuture* f, const uint8_t** key, int* n) {
	*key = f->value.p;
	*n = f->value.n;
	return fdb_future_get_error(f);
}

fdb_error_t fdb_future_get_value(FDBFuture* f, fdb_bool_t* present, const uint8_t** value, int* n) {
	*present = f->present;
	return fdb_future_get_key(f, value, n);
}

fdb_error_t fdb_future_get_keyvalue_array(FDBFuture* f, const FDBKeyValue** rows, int* count, fdb_bool_t* more) {
	*rows = f->kvs;
	*count = f->rows;
	*more = f->more;
	return fdb_future_get_error(f);
}

/* ---- databases ---- */

static int command(Store* s, const char* text);

/* is_shared tells whether the description in a cluster file says so. */
static int is_shared(const char* path) {
	char line[1024];
	int shared = 0;
	FILE* file = fopen(path, "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL)
		shared |= strncmp(line, "shared:", 7) == 0;
	if (file != NULL)
		fclose(file);
	return shared;
}

fdb_error_t fdb_create_database(const char* path, FDBDatabase** out) {
	if (path == NULL)
		return 1515;
	lock();
	Store* s = stores;
	while (s != NULL && strcmp(s->path, path) != 0)
		s = s->next;
	if (s == NULL) {
		s = calloc(1, sizeof *s);
		s->path = strdup(path);
		s->version = 1000000;
		s->epoch = micros() - s->version;
		if (is_shared(path))
			s->shared = log_open(path);
		s->next = stores;
		stores = s;
		pthread_cond_broadcast(&wake);
		const char* first = getenv("FAKE_FDB_COMMAND");
		if (first != NULL && command(s, first) != 0)
			abort();
	}
	*out = calloc(1, sizeof **out);
	(*out)->store = s;
	unlock();
	return 0;
}

void fdb_database_destroy(FDBDatabase* d) {
	d->store = NULL; /* a use after this is a crash, as it should be */
	free(d);
}

static int point_of(const char* name) {
	for (int i = 0; i < POINTS; i++)
		if (strcmp(name, point_names[i]) == 0)
			return i;
	return -1;
}

static int command(Store* s, const char* text) {
	char name[16], point[16];
	long long a = 0, b = 0;
	if (sscanf(text, "%15s %15s %lld %lld", name, point, &a, &b) < 2)
		return 2006;
	int at = point_of(point);
	if (strcmp(name, "fault") == 0 && at >= 0) {
		s->fault_code[at] = (int)a;
		s->fault_count[at] = (int)b;
	} else if (strcmp(name, "hang") == 0 && at >= 0) {
		s->hang[at] = (int)a;
		enqueue_parked();
	} else if (strcmp(name, "lock") == 0) {
		s->locked = atoi(point);
	} else if (strcmp(name, "connected") == 0) {
		s->disconnected = !atoi(point);
		enqueue_parked();
	} else if (strcmp(name, "advance") == 0 && s->shared == NULL) {
		s->epoch -= atoll(point);
		tick(s);
	} else {
		return 2006;
	}
	return 0;
}

fdb_error_t fdb_database_set_option(FDBDatabase* d, FDBDatabaseOption option, const uint8_t* value, int n) {
	if (option != OPTION_MACHINE_ID)
		return 0;
	lock();
	Bytes text = copy_bytes(value, n);
	int error = command(d->store, (const char*)text.p);
	free(text.p);
	unlock();
	return error;
}

fdb_error_t fdb_database_create_transaction(FDBDatabase* d, FDBTransaction** out) {
	FDBTransaction* t = calloc(1, sizeof *t);
	t->refs = 1;
	t->store = d->store;
	t->read_version = t->committed_version = -1;
	lock();
	t->hollow = t->store->disconnected;
	unlock();
	*out = t;
	return 0;
}

/* ---- transactions ---- */

static void empty(FDBTransaction* t) {
	for (int i = 0; i < t->n; i++) {
		free(t->ops[i].a.p);
		free(t->ops[i].b.p);
	}
	free(t->ops);
	t->ops = NULL;
	t->n = t->cap = 0;
	free_spans(&t->reads);
	free_spans(&t->writes);
}

static void unref_transaction(FDBTransaction* t) {
	if (--t->refs > 0)
		return;
	empty(t);
	free(t);
}

static void reset(FDBTransaction* t, FDBFuture* except) {
	abandon_pending(t, except, 1025);
	empty(t);
	t->read_version = -1;
	t->committed_version = -1;
	t->done = t->deferred = t->committing = t->read_error = 0;
	t->hollow = t->store->disconnected;
}

void fdb_transaction_destroy(FDBTransaction* t) {
	lock();
	abandon_pending(t, NULL, 1025);
	unref_transaction(t);
	unlock();
}

void fdb_transaction_cancel(FDBTransaction* t) {
	lock();
	if (!t->hollow) {
		t->cancelled = 1;
		abandon_pending(t, NULL, 1025);
	}
	unlock();
}

void fdb_transaction_reset(FDBTransaction* t) {
	lock();
	t->cancelled = t->done = 0; /* so that it ends watches as well, which is stricter than what FoundationDB says */
	reset(t, NULL);
	unlock();
}

fdb_error_t fdb_transaction_set_option(FDBTransaction* t, FDBTransactionOption option, const uint8_t* value, int n) {
	(void)t, (void)option, (void)value, (void)n;
	return 0;
}

static int get_read_version(FDBTransaction* t) {
	if (t->read_version >= 0)
		return 0;
	int error = trip(t->store, AT_GRV);
	if (error != 0)
		return error;
	if (t->store->locked)
		return 1038;
	tick(t->store);
	t->read_version = t->store->version;
	return 0;
}

static int is_too_old(FDBTransaction* t) {
	return t->store->version - t->read_version > LIFE_VERSIONS || t->read_version < t->store->oldest;
}

static int begin_read(FDBTransaction* t) {
	int error = get_read_version(t);
	if (error == 0)
		error = trip(t->store, AT_READ);
	tick(t->store);
	if (error == 0 && is_too_old(t))
		error = 1007;
	return error;
}

static int job_read_version(FDBFuture* f) {
	int error = get_read_version(f->t);
	f->number = f->t->read_version;
	return error;
}

FDBFuture* fdb_transaction_get_read_version(FDBTransaction* t) { return lock(), start(new_future(t, job_read_version)); }

static FDBFuture* new_read(FDBTransaction* t, int (*job)(FDBFuture*)) {
	FDBFuture* f = new_use(t, job);
	f->reads = 1;
	return f;
}

static int stamp_offset(Bytes data) {
	return data.n < 4 ? -1 : (int)((uint32_t)data.p[data.n - 4] | (uint32_t)data.p[data.n - 3] << 8 |
	                               (uint32_t)data.p[data.n - 2] << 16 | (uint32_t)data.p[data.n - 1] << 24);
}

/* stamped gives data without its offset, and with a stamp. */
static Bytes stamped(Bytes data, const uint8_t* stamp) {
	Bytes b = copy_bytes(data.p, data.n - 4);
	memcpy(b.p + stamp_offset(data), stamp, STAMP);
	return b;
}

/* unreadable_span is where the key of a versionstamped set may come to lie. */
static Span unreadable_span(Bytes key, int64_t read_version) {
	uint8_t low[STAMP] = { 0 }, high[STAMP];
	memset(high, 0xff, STAMP);
	for (int i = 0; i < 8 && read_version > 0; i++)
		low[i] = (uint8_t)(read_version >> (56 - 8 * i));
	if (read_version > 0)
		low[8] = low[9] = 0xff; /* the read version itself is past */
	return (Span){ stamped(key, low), stamped(key, high) };
}

/* add_values is FoundationDB's ADD: little endian, at the length of the parameter. */
static Bytes add_values(Bytes old, Bytes param) {
	Bytes sum = dup_bytes(param);
	int carry = 0;
	for (int i = 0; i < sum.n; i++) {
		carry += param.p[i] + (i < old.n ? old.p[i] : 0);
		sum.p[i] = (uint8_t)carry;
		carry >>= 8;
	}
	return sum;
}

typedef struct {
	int present, unreadable, own; /* own: the transaction's writes alone decide it */
	Bytes value;                  /* to be freed */
} View;

/* look gives key as the transaction sees it after its first n operations. */
static View look(FDBTransaction* t, Bytes key, int n) {
	Revision* r = look_up(t->store, key, t->read_version);
	View v = { r != NULL, 0, 0, r != NULL ? dup_bytes(r->value) : copy_bytes(NULL, 0) };
	for (int i = 0; i < n; i++) {
		Op* op = &t->ops[i];
		Bytes old = v.value;
		if (op->type == OP_CLEAR) {
			if (inside(key, (Span){ op->a, op->b }))
				v.present = v.unreadable = 0, v.own = 1;
			continue;
		}
		if (op->type == OP_STAMPED_KEY) {
			Span s = unreadable_span(op->a, t->read_version);
			v.unreadable |= inside(key, s) || equal(key, s.end);
			free(s.begin.p);
			free(s.end.p);
			continue;
		}
		if (!equal(op->a, key))
			continue;
		switch (op->type) {
		case OP_SET:
			v = (View){ 1, 0, 1, dup_bytes(op->b) };
			break;
		case OP_ADD:
			if (!v.present)
				old.n = 0;
			v = (View){ 1, v.unreadable, v.own, add_values(old, op->b) };
			break;
		default:
			v = (View){ 1, 1, v.own, copy_bytes(NULL, 0) };
		}
		free(old.p);
	}
	return v;
}

static int job_get(FDBFuture* f) {
	int error = begin_read(f->t);
	if (error != 0)
		return error;
	View v = look(f->t, f->key, f->ops);
	f->present = v.present;
	f->value = v.value;
	if (v.unreadable)
		return 1036;
	if (!f->snapshot && !v.own)
		add_span(&f->t->reads, dup_bytes(f->key), after(f->key));
	return 0;
}

FDBFuture* fdb_transaction_get(FDBTransaction* t, const uint8_t* key, int n, fdb_bool_t snapshot) {
	lock();
	FDBFuture* f = new_read(t, job_get);
	f->key = copy_bytes(key, n);
	f->snapshot = snapshot;
	return start(f);
}

static int compare_keys(const void* a, const void* b) { return compare(*(const Bytes*)a, *(const Bytes*)b); }

/* candidates gives the keys in the span that the store or the operations know, and a key in each unreadable part of it: the first
 * that the read comes to. Sorted, once each, borrowed; spans owns those of the unreadable parts. */
static Bytes* candidates(FDBFuture* f, Span span, Spans* spans, int* count) {
	FDBTransaction* t = f->t;
	int found, first = find_row(t->store, span.begin, &found), last = find_row(t->store, span.end, &found), n = 0;
	if (last < first)
		last = first;
	Bytes* keys = grow(NULL, sizeof(Bytes) * (size_t)(last - first + f->ops + 1));
	for (int i = first; i < last; i++)
		keys[n++] = t->store->rows[i].key;
	for (int i = 0; i < f->ops; i++) {
		Bytes key = t->ops[i].a;
		if (t->ops[i].type == OP_CLEAR)
			continue;
		if (t->ops[i].type == OP_STAMPED_KEY) {
			Span s = unreadable_span(key, t->read_version);
			add_span(spans, s.begin, s.end);
			key = f->reverse ? s.end : s.begin;
		}
		if (inside(key, span))
			keys[n++] = key;
	}
	if (n > last - first)
		qsort(keys, (size_t)n, sizeof(Bytes), compare_keys);
	*count = 0;
	for (int i = 0; i < n; i++)
		if (*count == 0 || !equal(keys[*count - 1], keys[i]))
			keys[(*count)++] = keys[i];
	return keys;
}

/* add_range_conflict covers what the read looked at: up to its last row when there is more, else the whole span. */
static void add_range_conflict(FDBFuture* f, Span span) {
	Bytes begin = dup_bytes(span.begin), end = dup_bytes(span.end);
	if (f->more && f->rows > 0) {
		Bytes last = { (uint8_t*)f->kvs[f->rows - 1].key, f->kvs[f->rows - 1].key_length };
		Bytes* moved = f->reverse ? &begin : &end;
		free(moved->p);
		*moved = f->reverse ? dup_bytes(last) : after(last);
	}
	add_span(&f->t->reads, begin, end);
}

static int job_get_range(FDBFuture* f) {
	FDBTransaction* t = f->t;
	Span span = { f->key, f->end };
	int error = begin_read(t);
	if (error == 0 && f->code != 0)
		error = f->code;
	if (error != 0)
		return error;
	int batch = f->limit > 0 && f->limit < BATCH_ROWS ? f->limit : BATCH_ROWS, n;
	Spans spans = { 0 };
	Bytes* keys = candidates(f, span, &spans, &n);
	f->kvs = grow(NULL, sizeof(FDBKeyValue) * (size_t)batch);
	for (int i = 0; i < n && error == 0; i++) {
		f->more = f->rows == batch; /* or so it seems: what is left may be absent */
		if (f->more)
			break;
		Bytes key = keys[f->reverse ? n - 1 - i : i];
		View v = look(t, key, f->ops);
		if (v.unreadable)
			error = 1036;
		if (!v.present || error != 0) {
			free(v.value.p);
			continue;
		}
		Bytes k = dup_bytes(key);
		f->kvs[f->rows++] = (FDBKeyValue){ k.p, k.n, v.value.p, v.value.n };
	}
	free(keys);
	free_spans(&spans);
	f->more |= f->limit > 0 && f->rows == f->limit;
	if (error == 0 && !f->snapshot && compare(span.begin, span.end) < 0)
		add_range_conflict(f, span);
	return error;
}

/* selected resolves the selectors first-greater-or-equal and first-greater-than to a key. */
static Bytes selected(const uint8_t* key, int n, fdb_bool_t or_equal) {
	Bytes b = copy_bytes(key, n);
	if (or_equal)
		b.n++;
	return b;
}

FDBFuture* fdb_transaction_get_range(FDBTransaction* t, const uint8_t* begin, int begin_length, fdb_bool_t begin_or_equal,
                                     int begin_offset, const uint8_t* end, int end_length, fdb_bool_t end_or_equal,
                                     int end_offset, int limit, int target_bytes, FDBStreamingMode mode, int iteration,
                                     fdb_bool_t snapshot, fdb_bool_t reverse) {
	(void)target_bytes;
	lock();
	FDBFuture* f = new_read(t, job_get_range);
	f->key = selected(begin, begin_length, begin_or_equal);
	f->end = selected(end, end_length, end_or_equal);
	f->limit = limit;
	f->snapshot = snapshot;
	f->reverse = reverse;
	if (begin_offset != 1 || end_offset != 1)
		f->code = 2000;
	if (mode < MODE_WANT_ALL || mode > MODE_SERIAL || (mode == MODE_ITERATOR && iteration <= 0))
		f->code = 2000;
	if (mode == MODE_EXACT && limit == 0)
		f->code = 2210;
	return start(f);
}

/* ---- writes ---- */

static void add_op(FDBTransaction* t, OpType type, Bytes a, Bytes b) {
	lock();
	if (t->hollow) {
		free(a.p);
		free(b.p);
		unlock();
		return;
	}
	if (t->committing)
		abandon_pending(t, NULL, 2017);
	if (t->n == t->cap)
		t->ops = grow(t->ops, sizeof(Op) * (size_t)(t->cap = t->cap ? 2 * t->cap : 16));
	t->ops[t->n++] = (Op){ type, a, b };
	if (t->deferred == 0 && a.n > 0 && a.p[0] == 0xff && type != OP_CLEAR)
		t->deferred = 2004;
	if (t->deferred == 0 && type == OP_CLEAR && compare(a, b) > 0)
		t->deferred = 2005;
	if (t->deferred == 0 && type != OP_CLEAR && a.n > MAX_KEY) /* the offset of a stamp is a part of the key */
		t->deferred = 2102;
	if (t->deferred == 0 && type != OP_CLEAR && b.n > MAX_VALUE)
		t->deferred = 2103;
	unlock();
}

void fdb_transaction_set(FDBTransaction* t, const uint8_t* key, int kn, const uint8_t* value, int vn) {
	add_op(t, OP_SET, copy_bytes(key, kn), copy_bytes(value, vn));
}

void fdb_transaction_clear(FDBTransaction* t, const uint8_t* key, int n) {
	Bytes k = copy_bytes(key, n);
	add_op(t, OP_CLEAR, k, after(k));
}

void fdb_transaction_clear_range(FDBTransaction* t, const uint8_t* begin, int bn, const uint8_t* end, int en) {
	add_op(t, OP_CLEAR, copy_bytes(begin, bn), copy_bytes(end, en));
}

void fdb_transaction_atomic_op(FDBTransaction* t, const uint8_t* key, int kn, const uint8_t* param, int pn, FDBMutationType type) {
	OpType op = type == MUTATION_ADD ? OP_ADD : type == MUTATION_STAMPED_KEY ? OP_STAMPED_KEY : OP_STAMPED_VALUE;
	if (op == OP_STAMPED_VALUE && type != MUTATION_STAMPED_VALUE)
		abort(); /* not one that the engine uses */
	Bytes k = copy_bytes(key, kn), p = copy_bytes(param, pn), stamp = op == OP_STAMPED_KEY ? k : p;
	int offset = op == OP_ADD ? 0 : stamp_offset(stamp);
	if (op != OP_ADD && (offset < 0 || offset > stamp.n - 4 - STAMP)) {
		lock();
		t->deferred = 2000;
		unlock();
		free(k.p);
		free(p.p);
		return;
	}
	add_op(t, op, k, p);
}

fdb_error_t fdb_transaction_add_conflict_range(FDBTransaction* t, const uint8_t* begin, int bn, const uint8_t* end, int en,
                                               FDBConflictRangeType type) {
	lock();
	Bytes b = copy_bytes(begin, bn), e = copy_bytes(end, en);
	int error = compare(b, e) > 0 ? 2005 : 0;
	if (t->committing && !t->hollow)
		abandon_pending(t, NULL, 2017);
	if (error == 0 && compare(b, e) < 0 && !t->hollow) {
		add_span(type == 0 ? &t->reads : &t->writes, b, e);
	} else {
		free(b.p);
		free(e.p);
	}
	unlock();
	return error;
}

static int64_t size_of(FDBTransaction* t) {
	int64_t size = 0;
	for (int i = 0; i < t->n; i++)
		size += t->ops[i].a.n * 3 + t->ops[i].b.n;
	for (int i = 0; i < t->reads.n; i++)
		size += t->reads.at[i].begin.n + t->reads.at[i].end.n;
	for (int i = 0; i < t->writes.n; i++)
		size += t->writes.at[i].begin.n + t->writes.at[i].end.n;
	return size;
}

static int job_size(FDBFuture* f) {
	f->number = size_of(f->t);
	return 0;
}

#ifndef FAKE_INCOMPLETE
FDBFuture* fdb_transaction_get_approximate_size(FDBTransaction* t) { return lock(), start(new_future(t, job_size)); }
#endif

/* ---- watches ---- */

static int job_done(FDBFuture* f) {
	(void)f;
	return 0;
}

static int fires(FDBFuture* f) {
	Revision* now = look_up(f->t->store, f->key, f->t->store->version);
	return (now != NULL) != f->watch_present || (now != NULL && !equal(now->value, f->value));
}

static void fire_watches(Store* s) {
	for (FDBFuture *f = s->watches, *next; f != NULL; f = next) {
		next = f->next_watch;
		if (fires(f))
			enqueue(f);
	}
}

/* job_watch runs when the watch is made: it reads the value like any other read, and leaves the future pending. Its failure is no
 * failure of the commit. */
static int job_watch(FDBFuture* f) {
	int error = begin_read(f->t);
	if (error != 0)
		return error;
	View v = look(f->t, f->key, f->ops);
	f->watch_present = v.present;
	f->value = v.value;
	if (v.unreadable)
		return 1036;
	if (!v.own)
		add_span(&f->t->reads, dup_bytes(f->key), after(f->key));
	f->watching = 1;
	f->job = job_done;
	f->next_watch = NULL;
	return HOLD;
}

static void start_watches(FDBTransaction* t) {
	for (FDBFuture* f = t->pending; f != NULL; f = f->sibling)
		if (f->watching) {
			f->next_watch = t->store->watches;
			t->store->watches = f;
		}
}

FDBFuture* fdb_transaction_watch(FDBTransaction* t, const uint8_t* key, int n) {
	lock();
	FDBFuture* f = new_use(t, job_watch);
	f->key = copy_bytes(key, n);
	return start(f);
}

/* ---- commits ---- */

static int conflicts(FDBTransaction* t) {
	Store* s = t->store;
	for (int i = s->log_n - 1; i >= 0 && s->log[i].version > t->read_version; i--)
		for (int j = 0; j < t->reads.n; j++)
			if (overlap(s->log[i].span, t->reads.at[j]))
				return 1;
	return 0;
}

static void log_write(Store* s, Bytes begin, Bytes end) {
	if (s->log_n == s->log_cap)
		s->log = grow(s->log, sizeof(Written) * (size_t)(s->log_cap = s->log_cap ? 2 * s->log_cap : 64));
	s->log[s->log_n++] = (Written){ s->version, { begin, end } };
}

static void apply_op(Store* s, Op* op, const uint8_t* stamp) {
	if (op->type == OP_WRITTEN) {
		log_write(s, dup_bytes(op->a), dup_bytes(op->b));
		return;
	}
	Bytes key = op->type == OP_STAMPED_KEY ? stamped(op->a, stamp) : dup_bytes(op->a);
	if (op->type == OP_CLEAR) {
		int found, last = find_row(s, op->b, &found);
		for (int i = find_row(s, op->a, &found); i < last; i++)
			if (s->rows[i].at[s->rows[i].n - 1].present)
				put(s, s->rows[i].key, 0, copy_bytes(NULL, 0), s->version);
		log_write(s, key, dup_bytes(op->b));
		return;
	}
	Revision* old = look_up(s, key, s->version);
	if (op->type == OP_ADD)
		put(s, key, 1, add_values(old != NULL ? old->value : (Bytes){ 0 }, op->b), s->version);
	else
		put(s, key, 1, op->type == OP_STAMPED_VALUE ? stamped(op->b, stamp) : dup_bytes(op->b), s->version);
	log_write(s, key, after(key));
}

static void stamp_of(int64_t version, uint8_t* stamp) {
	for (int i = 0; i < 8; i++)
		stamp[i] = (uint8_t)(version >> (56 - 8 * i));
	stamp[8] = 0;
	stamp[9] = (uint8_t)(version / VERSION_STEP % 5);
}

static void apply(FDBTransaction* t, int ops) {
	Store* s = t->store;
	s->version += VERSION_STEP;
	t->committed_version = s->version;
	stamp_of(s->version, t->stamp);
	for (int i = 0; i < ops; i++)
		apply_op(s, &t->ops[i], t->stamp);
	for (int i = 0; i < t->writes.n; i++)
		apply_op(s, &(Op){ OP_WRITTEN, t->writes.at[i].begin, t->writes.at[i].end }, t->stamp);
	sweep(s);
}

/* ---- a shared store ---- */

static void append_bytes(Bytes* to, const void* p, int n) {
	to->p = grow(to->p, (size_t)(to->n + n));
	if (n > 0)
		memcpy(to->p + to->n, p, (size_t)n);
	to->n += n;
}

static void write_op(Bytes* to, OpType type, Bytes a, Bytes b) {
	int head[3] = { (int)type, a.n, b.n };
	append_bytes(to, head, sizeof head);
	append_bytes(to, a.p, a.n);
	append_bytes(to, b.p, b.n);
}

/* read_op takes an operation, borrowed, from the front of what write_op wrote. */
static Op read_op(Bytes* from) {
	int head[3];
	memcpy(head, from->p, sizeof head);
	uint8_t* p = from->p + sizeof head;
	Op op = { (OpType)head[0], { p, head[1] }, { p + head[1], head[2] } };
	from->p = op.b.p + op.b.n;
	from->n -= (int)sizeof head + op.a.n + op.b.n;
	return op;
}

static void replay(Store* s, int64_t version, Bytes ops) {
	uint8_t stamp[STAMP];
	stamp_of(version, stamp);
	s->version = version;
	while (ops.n > 0) {
		Op op = read_op(&ops);
		apply_op(s, &op, stamp);
	}
	sweep(s);
}

/* start_over replaces a replica that is too far behind the log by the snapshot in it. Transactions that began before are too old. */
static void start_over(Store* s) {
	for (int i = 0; i < s->n; i++)
		free_row(&s->rows[i]);
	for (int i = 0; i < s->log_n; i++) {
		free(s->log[i].span.begin.p);
		free(s->log[i].span.end.p);
	}
	s->n = s->log_n = 0;
	Bytes rows = { 0 };
	rows.p = log_read_snapshot(s->shared, &s->oldest, &rows.n);
	replay(s, s->oldest, rows);
	free(rows.p);
}

/* catch_up applies what processes have committed, this one included. */
static void catch_up(Store* s) {
	int64_t version;
	Bytes ops;
	int changed = 0;
	for (;; changed = 1) {
		ops.p = NULL;
		switch (log_next(s->shared, &version, &ops.p, &ops.n)) {
		case LOG_END:
			if (changed)
				fire_watches(s);
			return;
		case LOG_BEHIND:
			start_over(s);
			break;
		case LOG_RECORD:
			replay(s, version, ops);
			free(ops.p);
		}
	}
}

/* tick_shared commits nothing when nobody has committed for a while. A read version is always that of a commit: whatever commits later gets a
 * version above it, so no lock is needed. */
static void tick_shared(Store* s) {
	catch_up(s);
	int64_t now = micros();
	if (now - s->version < IDLE_VERSIONS)
		return;
	uint64_t record = 0;
	log_append(s->shared, &record, now, NULL, 0);
	catch_up(s);
}

static void save_snapshot(Store* s) {
	Bytes rows = { 0 };
	for (int i = 0; i < s->n; i++) {
		Revision* r = &s->rows[i].at[s->rows[i].n - 1];
		if (r->present)
			write_op(&rows, OP_SET, s->rows[i].key, r->value);
	}
	log_write_snapshot(s->shared, s->version, rows.p, rows.n);
	free(rows.p);
}

static int conflicts(FDBTransaction* t);

static int commit_shared(FDBTransaction* t, int count) {
	Store* s = t->store;
	Bytes ops = { 0 };
	for (int i = 0; i < count; i++)
		write_op(&ops, t->ops[i].type, t->ops[i].a, t->ops[i].b);
	for (int i = 0; i < t->writes.n; i++)
		write_op(&ops, OP_WRITTEN, t->writes.at[i].begin, t->writes.at[i].end);
	int error, appended = LOG_OVERTAKEN;
	int64_t version;
	uint64_t record = 0;
	do {
		catch_up(s);
		error = is_too_old(t) ? 1007 : conflicts(t) ? 1020 : 0;
		int64_t now = micros();
		version = now > s->version + VERSION_STEP ? now : s->version + VERSION_STEP;
		if (error == 0)
			appended = log_append(s->shared, &record, version, ops.p, ops.n);
	} while (error == 0 && appended == LOG_OVERTAKEN);
	free(ops.p);
	if (error == 0 && appended == LOG_UNKNOWN)
		error = 1021;
	if (error != 0)
		return error;
	t->committed_version = version;
	stamp_of(version, t->stamp);
	catch_up(s);
	if (log_wants_snapshot(s->shared))
		save_snapshot(s);
	return 0;
}

static int commit_check(FDBTransaction* t) {
	if (t->deferred != 0)
		return t->deferred;
	if (size_of(t) > 10000000)
		return 2101;
	if (t->store->locked)
		return 1038;
	int error = get_read_version(t);
	if (error != 0)
		return error;
	tick(t->store);
	if (is_too_old(t))
		return 1007;
	return conflicts(t) ? 1020 : 0;
}

static int job_stamp(FDBFuture* f) {
	f->value = copy_bytes(f->t->stamp, STAMP);
	return f->t->committed_version < 0 ? 2021 : 0;
}

static void settle(FDBTransaction* t) {
	t->done = 1;
	start_watches(t);
	for (FDBFuture* f = t->pending; f != NULL; f = f->sibling)
		if (f->wait_commit)
			enqueue(f);
	fire_watches(t->store);
}

static int waits_for_reads(FDBTransaction* t) {
	for (FDBFuture* f = t->pending; f != NULL; f = f->sibling)
		if (f->reads && !f->ready)
			return 1;
	return 0;
}

static int job_commit(FDBFuture* f) {
	FDBTransaction* t = f->t;
	if (waits_for_reads(t))
		return PARK;
	if (t->read_error != 0)
		return t->read_error;
	if (f->ops == 0 && t->writes.n == 0 && t->deferred == 0) {
		t->committed_version = -1;
		settle(t);
		return 0;
	}
	int error = trip(t->store, AT_COMMIT);
	if (error == 0)
		error = commit_check(t);
	if (error != 0)
		return error;
	if (t->store->shared != NULL) {
		error = commit_shared(t, f->ops);
		if (error != 0)
			return error;
	} else {
		apply(t, f->ops);
	}
	error = trip(t->store, AT_COMMITTED);
	if (error != 0) {
		fire_watches(t->store); /* of others: the transaction's own get its error by the reset */
		return error;
	}
	settle(t);
	return 0;
}

FDBFuture* fdb_transaction_commit(FDBTransaction* t) {
	lock();
	FDBFuture* f = new_use(t, job_commit);
	t->committing = 1;
	return start(f);
}

fdb_error_t fdb_transaction_get_committed_version(FDBTransaction* t, int64_t* out) {
	lock();
	*out = t->committed_version;
	unlock();
	return 0;
}

FDBFuture* fdb_transaction_get_versionstamp(FDBTransaction* t) {
	lock();
	FDBFuture* f = new_use(t, job_stamp);
	f->wait_commit = 1;
	if (f->doom || t->hollow)
		enqueue(f);
	unlock();
	return f;
}

static int is_retryable(int code) {
	static const int codes[] = { 1007, 1009, 1020, 1021, 1037, 1038, 1039, 1042, 1051, 1078, 1213, 1223, 1235 };
	for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
		if (codes[i] == code)
			return 1;
	return 0;
}

static int job_on_error(FDBFuture* f) {
	if (f->code == 1039 || !is_retryable(f->code)) /* 1039 is what the multi-version client makes, and takes */
		return f->code;
	int error = trip(f->t->store, AT_BACKOFF);
	if (error == 0)
		reset(f->t, f);
	return error;
}

FDBFuture* fdb_transaction_on_error(FDBTransaction* t, fdb_error_t code) {
	lock();
	int changed = t->hollow && code == 1039;
	if (changed)
		reset(t, NULL);
	FDBFuture* f = new_future(t, changed ? job_done : job_on_error);
	f->code = code;
	return start(f);
}

#ifdef FAKE_MAIN
/* A program that says which keys a shared store has: exit code 1 when there are any. */
int main(int argc, char** argv) {
	FDBDatabase* d;
	if (argc != 2 || fdb_create_database(argv[1], &d) != 0 || d->store->shared == NULL) {
		fprintf(stderr, "usage: %s CLUSTER_FILE, one of a shared store\n", argv[0]);
		return 2;
	}
	int n = 0;
	lock();
	catch_up(d->store);
	for (int i = 0; i < d->store->n; i++) {
		Row* r = &d->store->rows[i];
		if (!r->at[r->n - 1].present)
			continue;
		for (int j = 0; j < r->key.n; j++)
			printf(r->key.p[j] > ' ' && r->key.p[j] < 0x7f ? "%c" : "\\x%02x", r->key.p[j]);
		putchar('\n');
		n++;
	}
	unlock();
	return n > 0;
}
#endif
