/*
 * A libfdb_c that opens the real one at run time, so that one binary runs with and without FoundationDB installed.
 *
 * Before varve_fdb_load has succeeded a function that returns an error code returns api_function_missing (2204), one
 * that returns a plain value returns a harmless one, and one whose signature cannot say it ends the process with a
 * clear message. Afterwards the same holds for the few functions that the engine does not use and that a library may
 * lack; all others are there, or the load fails.
 */
#include <foundationdb/fdb_c.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION 730
#define API_FUNCTION_MISSING 2204
#define PATH_SIZE 4096

#ifdef __APPLE__
static const char* const default_names[] = { "libfdb_c.dylib", "/usr/local/lib/libfdb_c.dylib", NULL };
#else
static const char* const default_names[] = { "libfdb_c.so", NULL };
#endif

/* functions holds the library's own functions. It is written once, before loaded is set, and read only after. */
static struct {
#define FDB_CODE(name, parameters, arguments) fdb_error_t(*name) parameters;
#define FDB_VALUE(type, missing, name, parameters, arguments) type(*name) parameters;
#define FDB_HANDLE(name, parameters, arguments) FDBFuture*(*name)parameters;
#define FDB_VOID(name, parameters, arguments) void(*name) parameters;
#include "foundationdb/functions.h"
} functions;

static atomic_int loaded;
static pthread_mutex_t load_mutex = PTHREAD_MUTEX_INITIALIZER;
static char loaded_path[PATH_SIZE]; /* under load_mutex; the path as it was asked for */

/* What the binding has and our engine does not call. Later libraries may drop them: tenants were never finished. */
static const char* const optional[] = {
	"fdb_create_database_from_connection_string",
	"fdb_database_open_tenant",
	"fdb_tenant_destroy",
	"fdb_tenant_create_transaction",
	"fdb_database_reboot_worker",
	"fdb_database_get_client_status",
	"fdb_transaction_set_read_version",
	"fdb_transaction_get_key",
	"fdb_transaction_get_addresses_for_key",
	"fdb_transaction_get_estimated_range_size_bytes",
	"fdb_transaction_get_range_split_points",
	"fdb_future_get_key_array",
	"fdb_future_get_string_array",
};

static int is_optional(const char* name) {
	for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
		if (strcmp(optional[i], name) == 0)
			return 1;
	return 0;
}

static int is_loaded(void) {
	return atomic_load_explicit(&loaded, memory_order_acquire);
}

static void die(const char* name) {
	fprintf(stderr, "varve: %s was called, and %s\n", name,
	        is_loaded() ? "the FoundationDB client library does not have it" : "no FoundationDB client library is loaded");
	abort();
}

#define HAS(name) (is_loaded() && functions.name != NULL)

#define FDB_CODE(name, parameters, arguments)                                                                          \
	fdb_error_t name parameters {                                                                                      \
		if (!HAS(name))                                                                                                \
			return API_FUNCTION_MISSING;                                                                               \
		return functions.name arguments;                                                                               \
	}
#define FDB_VALUE(type, missing, name, parameters, arguments)                                                          \
	type name parameters {                                                                                             \
		if (!HAS(name))                                                                                                \
			return missing;                                                                                            \
		return functions.name arguments;                                                                               \
	}
#define FDB_HANDLE(name, parameters, arguments)                                                                        \
	FDBFuture* name parameters {                                                                                       \
		if (!HAS(name))                                                                                                \
			die(#name);                                                                                                \
		return functions.name arguments;                                                                               \
	}
#define FDB_VOID(name, parameters, arguments)                                                                          \
	void name parameters {                                                                                             \
		if (!HAS(name))                                                                                                \
			die(#name);                                                                                                \
		functions.name arguments;                                                                                      \
	}
#include "foundationdb/functions.h"

/* find gives the name of the first function that the library must have and lacks, or NULL when functions is complete. */
static const char* find(void* library) {
#define FIND(name)                                                                                                     \
	{                                                                                                                  \
		void* symbol = dlsym(library, #name);                                                                          \
		if (symbol == NULL && !is_optional(#name))                                                                     \
			return #name;                                                                                              \
		memcpy(&functions.name, &symbol, sizeof symbol);                                                               \
	}
#define FDB_CODE(name, parameters, arguments) FIND(name)
#define FDB_VALUE(type, missing, name, parameters, arguments) FIND(name)
#define FDB_HANDLE(name, parameters, arguments) FIND(name)
#define FDB_VOID(name, parameters, arguments) FIND(name)
#include "foundationdb/functions.h"
#undef FIND
	return NULL;
}

static void* open_library(const char* path, char* message, int size) {
	if (path[0] != '\0') {
		void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (library == NULL)
			snprintf(message, (size_t)size, "%s", dlerror());
		return library;
	}
	for (int i = 0; default_names[i] != NULL; i++) {
		void* library = dlopen(default_names[i], RTLD_NOW | RTLD_LOCAL);
		if (library != NULL)
			return library;
		snprintf(message, (size_t)size, "%s", dlerror());
	}
	return NULL;
}

/* The version is asked before anything else: an old library also lacks functions, and its age is the better message. */
static int check_version(void* library, char* message, int size) {
	int (*max_api_version)(void);
	void* symbol = dlsym(library, "fdb_get_max_api_version");
	if (symbol == NULL) {
		snprintf(message, (size_t)size, "fdb_get_max_api_version");
		return VARVE_FDB_INCOMPLETE;
	}
	memcpy(&max_api_version, &symbol, sizeof symbol);
	if (max_api_version() < API_VERSION) {
		snprintf(message, (size_t)size, "%d", max_api_version());
		return VARVE_FDB_TOO_OLD;
	}
	return VARVE_FDB_OK;
}

static int load_locked(const char* path, char* message, int size) {
	if (is_loaded()) {
		if (strcmp(path, loaded_path) == 0)
			return VARVE_FDB_OK;
		snprintf(message, (size_t)size, "%s", loaded_path);
		return VARVE_FDB_OTHER_PATH;
	}
	void* library = open_library(path, message, size);
	if (library == NULL)
		return VARVE_FDB_MISSING;
	int code = check_version(library, message, size);
	if (code != VARVE_FDB_OK) {
		dlclose(library);
		return code;
	}
	const char* lacking = find(library);
	if (lacking != NULL) {
		snprintf(message, (size_t)size, "%s", lacking);
		dlclose(library);
		return VARVE_FDB_INCOMPLETE;
	}
	snprintf(loaded_path, sizeof loaded_path, "%s", path);
	atomic_store_explicit(&loaded, 1, memory_order_release); /* never closed again: its threads may still run */
	return VARVE_FDB_OK;
}

int varve_fdb_load(const char* path, char* message, int size) {
	if (size > 0)
		message[0] = '\0';
	pthread_mutex_lock(&load_mutex);
	int code = load_locked(path, message, size);
	pthread_mutex_unlock(&load_mutex);
	return code;
}
