/*
 * The part of FoundationDB's C API (version 730) that the Go binding calls, in our own words: prototypes and types only.
 *
 * The functions are implemented by shim.c, which forwards them to a libfdb_c opened at run time. The list of functions
 * is functions.h, so that the prototypes here, the table of pointers and the forwarders cannot drift apart.
 *
 * ABI notes: every enum of the API is passed as an int. FDBKey and FDBKeyValue are packed to 4 bytes (12 and 24 bytes on
 * 64-bit machines); the Go binding reads them at those offsets.
 */
#ifndef VARVE_FDB_C_H
#define VARVE_FDB_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int fdb_error_t;
typedef int fdb_bool_t;

typedef struct FDB_future FDBFuture;
typedef struct FDB_database FDBDatabase;
typedef struct FDB_tenant FDBTenant;
typedef struct FDB_transaction FDBTransaction;

typedef int FDBNetworkOption;
typedef int FDBDatabaseOption;
typedef int FDBTransactionOption;
typedef int FDBStreamingMode;
typedef int FDBMutationType;
typedef int FDBConflictRangeType;

#pragma pack(push, 4)
typedef struct {
	const uint8_t* key;
	int key_length;
} FDBKey;

typedef struct {
	const uint8_t* key;
	int key_length;
	const uint8_t* value;
	int value_length;
} FDBKeyValue;
#pragma pack(pop)

typedef void (*FDBCallback)(FDBFuture* future, void* parameter);

/*
 * Hidden: the forwarders must not become visible to the library that is opened at run time, or its own calls of the
 * API would come back here.
 */
#ifndef VARVE_FDB_C_EXPORT /* the tests' own libfdb_c defines it */
#pragma GCC visibility push(hidden)
#endif

#define FDB_CODE(name, parameters, arguments) fdb_error_t name parameters;
#define FDB_VALUE(type, missing, name, parameters, arguments) type name parameters;
#define FDB_HANDLE(name, parameters, arguments) FDBFuture* name parameters;
#define FDB_VOID(name, parameters, arguments) void name parameters;
#include "functions.h"

/*
 * varve_fdb_load opens the client library at path, or the platform's default name where path is empty, and looks up
 * every function. Returns VARVE_FDB_OK, or another of the codes below with a text in message (always terminated, at
 * most size bytes). It may be called again after a failure, and with the same path after a success. Thread-safe.
 */
enum {
	VARVE_FDB_OK = 0,
	VARVE_FDB_MISSING = 1,     /* the library cannot be opened; message is the dynamic linker's */
	VARVE_FDB_TOO_OLD = 2,     /* it supports only API versions below 730; message is the highest one it supports */
	VARVE_FDB_INCOMPLETE = 3,  /* a function is missing; message is its name */
	VARVE_FDB_OTHER_PATH = 4,  /* a library is loaded already from another path; message is that path */
};
int varve_fdb_load(const char* path, char* message, int size);

#ifndef VARVE_FDB_C_EXPORT
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
