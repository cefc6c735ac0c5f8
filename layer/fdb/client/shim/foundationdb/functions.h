/*
 * Every function of the C API that the Go binding calls. Include it with these four macros defined; it undefines them.
 *
 *   FDB_CODE(name, parameters, arguments)                  returns an fdb_error_t
 *   FDB_VALUE(type, missing, name, parameters, arguments)  returns a type; missing is what it returns without a library
 *   FDB_HANDLE(name, parameters, arguments)                returns an FDBFuture*, which cannot say that a library is missing
 *   FDB_VOID(name, parameters, arguments)                  returns nothing
 */

FDB_CODE(fdb_select_api_version_impl, (int runtime_version, int header_version), (runtime_version, header_version))
FDB_VALUE(int, 0, fdb_get_max_api_version, (void), ())
FDB_VALUE(const char*, "no FoundationDB client library is loaded", fdb_get_error, (fdb_error_t code), (code))
FDB_VALUE(const char*, "", fdb_get_client_version, (void), ())

FDB_CODE(fdb_network_set_option, (FDBNetworkOption option, const uint8_t* value, int value_length), (option, value, value_length))
FDB_CODE(fdb_setup_network, (void), ())
FDB_CODE(fdb_run_network, (void), ())
FDB_CODE(fdb_stop_network, (void), ())

FDB_VOID(fdb_future_destroy, (FDBFuture* f), (f))
FDB_VOID(fdb_future_cancel, (FDBFuture* f), (f))
FDB_VOID(fdb_future_release_memory, (FDBFuture* f), (f))
FDB_VALUE(fdb_bool_t, 0, fdb_future_is_ready, (FDBFuture* f), (f))
FDB_CODE(fdb_future_set_callback, (FDBFuture* f, FDBCallback callback, void* parameter), (f, callback, parameter))
FDB_CODE(fdb_future_get_error, (FDBFuture* f), (f))
FDB_CODE(fdb_future_get_int64, (FDBFuture* f, int64_t* out), (f, out))
FDB_CODE(fdb_future_get_key, (FDBFuture* f, const uint8_t** key, int* key_length), (f, key, key_length))
FDB_CODE(fdb_future_get_value, (FDBFuture* f, fdb_bool_t* present, const uint8_t** value, int* value_length), (f, present, value, value_length))
FDB_CODE(fdb_future_get_keyvalue_array, (FDBFuture* f, const FDBKeyValue** rows, int* count, fdb_bool_t* more), (f, rows, count, more))
FDB_CODE(fdb_future_get_key_array, (FDBFuture* f, const FDBKey** keys, int* count), (f, keys, count))
FDB_CODE(fdb_future_get_string_array, (FDBFuture* f, const char*** strings, int* count), (f, strings, count))

FDB_CODE(fdb_create_database, (const char* cluster_file_path, FDBDatabase** out), (cluster_file_path, out))
FDB_CODE(fdb_create_database_from_connection_string, (const char* connection_string, FDBDatabase** out), (connection_string, out))
FDB_VOID(fdb_database_destroy, (FDBDatabase* d), (d))
FDB_CODE(fdb_database_set_option, (FDBDatabase* d, FDBDatabaseOption option, const uint8_t* value, int value_length), (d, option, value, value_length))
FDB_CODE(fdb_database_create_transaction, (FDBDatabase* d, FDBTransaction** out), (d, out))
FDB_CODE(fdb_database_open_tenant, (FDBDatabase* d, const uint8_t* name, int name_length, FDBTenant** out), (d, name, name_length, out))
FDB_HANDLE(fdb_database_reboot_worker, (FDBDatabase* d, const uint8_t* address, int address_length, fdb_bool_t check, int duration), (d, address, address_length, check, duration))
FDB_HANDLE(fdb_database_get_client_status, (FDBDatabase* d), (d))

FDB_VOID(fdb_tenant_destroy, (FDBTenant* t), (t))
FDB_CODE(fdb_tenant_create_transaction, (FDBTenant* t, FDBTransaction** out), (t, out))

FDB_VOID(fdb_transaction_destroy, (FDBTransaction* t), (t))
FDB_VOID(fdb_transaction_cancel, (FDBTransaction* t), (t))
FDB_VOID(fdb_transaction_reset, (FDBTransaction* t), (t))
FDB_CODE(fdb_transaction_set_option, (FDBTransaction* t, FDBTransactionOption option, const uint8_t* value, int value_length), (t, option, value, value_length))
FDB_VOID(fdb_transaction_set_read_version, (FDBTransaction* t, int64_t version), (t, version))
FDB_HANDLE(fdb_transaction_get_read_version, (FDBTransaction* t), (t))
FDB_HANDLE(fdb_transaction_get, (FDBTransaction* t, const uint8_t* key, int key_length, fdb_bool_t snapshot), (t, key, key_length, snapshot))
FDB_HANDLE(fdb_transaction_get_key,
           (FDBTransaction* t, const uint8_t* key, int key_length, fdb_bool_t or_equal, int offset, fdb_bool_t snapshot),
           (t, key, key_length, or_equal, offset, snapshot))
FDB_HANDLE(fdb_transaction_get_addresses_for_key, (FDBTransaction* t, const uint8_t* key, int key_length), (t, key, key_length))
FDB_HANDLE(fdb_transaction_get_range,
           (FDBTransaction* t, const uint8_t* begin, int begin_length, fdb_bool_t begin_or_equal, int begin_offset,
            const uint8_t* end, int end_length, fdb_bool_t end_or_equal, int end_offset, int limit, int target_bytes,
            FDBStreamingMode mode, int iteration, fdb_bool_t snapshot, fdb_bool_t reverse),
           (t, begin, begin_length, begin_or_equal, begin_offset, end, end_length, end_or_equal, end_offset, limit,
            target_bytes, mode, iteration, snapshot, reverse))
FDB_HANDLE(fdb_transaction_get_estimated_range_size_bytes,
           (FDBTransaction* t, const uint8_t* begin, int begin_length, const uint8_t* end, int end_length),
           (t, begin, begin_length, end, end_length))
FDB_HANDLE(fdb_transaction_get_range_split_points,
           (FDBTransaction* t, const uint8_t* begin, int begin_length, const uint8_t* end, int end_length, int64_t chunk_size),
           (t, begin, begin_length, end, end_length, chunk_size))
FDB_VOID(fdb_transaction_set, (FDBTransaction* t, const uint8_t* key, int key_length, const uint8_t* value, int value_length),
         (t, key, key_length, value, value_length))
FDB_VOID(fdb_transaction_atomic_op,
         (FDBTransaction* t, const uint8_t* key, int key_length, const uint8_t* param, int param_length, FDBMutationType type),
         (t, key, key_length, param, param_length, type))
FDB_VOID(fdb_transaction_clear, (FDBTransaction* t, const uint8_t* key, int key_length), (t, key, key_length))
FDB_VOID(fdb_transaction_clear_range, (FDBTransaction* t, const uint8_t* begin, int begin_length, const uint8_t* end, int end_length),
         (t, begin, begin_length, end, end_length))
FDB_CODE(fdb_transaction_add_conflict_range,
         (FDBTransaction* t, const uint8_t* begin, int begin_length, const uint8_t* end, int end_length, FDBConflictRangeType type),
         (t, begin, begin_length, end, end_length, type))
FDB_HANDLE(fdb_transaction_watch, (FDBTransaction* t, const uint8_t* key, int key_length), (t, key, key_length))
FDB_HANDLE(fdb_transaction_commit, (FDBTransaction* t), (t))
FDB_HANDLE(fdb_transaction_on_error, (FDBTransaction* t, fdb_error_t code), (t, code))
FDB_CODE(fdb_transaction_get_committed_version, (FDBTransaction* t, int64_t* out), (t, out))
FDB_HANDLE(fdb_transaction_get_versionstamp, (FDBTransaction* t), (t))
FDB_HANDLE(fdb_transaction_get_approximate_size, (FDBTransaction* t), (t))

#undef FDB_CODE
#undef FDB_VALUE
#undef FDB_HANDLE
#undef FDB_VOID
