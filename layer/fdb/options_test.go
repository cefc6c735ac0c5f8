package fdb

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/ops/settings"
)

func TestOptionsDefaults(t *testing.T) {
	fromFlags := settings.Default[Options]()
	require.NoError(t, fromFlags.Validate())
	require.Equal(t, DefaultTransactionTimeout, fromFlags.TransactionTimeout)

	filled := Options{}.withDefaults()
	require.NoError(t, filled.Validate())
	require.NotNil(t, filled.Logger)
	filled.Logger = nil
	require.Equal(t, fromFlags, filled, "flags and zero value mean the same")
}

func TestOptionsValidate(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file.pem")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	missing := filepath.Join(directory, "missing")

	require.NoError(t, Options{TLSCertificate: file, TLSKey: file, TLSCA: file, TraceDir: directory,
		ExternalClientDirectory: directory, RetryLimit: 3, TransactionTimeout: time.Second}.Validate())
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{TransactionTimeout: -1}, "transaction timeout -1ns is negative"},
		{Options{RetryLimit: -1}, "retry limit -1 is negative"},
		{Options{TLSCertificate: file}, "go together"},
		{Options{TLSKey: file}, "go together"},
		{Options{TLSCertificate: missing, TLSKey: file}, "TLS certificate: "},
		{Options{TLSCertificate: file, TLSKey: missing}, "TLS key: "},
		{Options{TLSCA: missing}, "TLS CA: "},
		{Options{TLSCA: directory}, "is a directory"},
		{Options{TraceDir: missing}, "trace directory: "},
		{Options{ExternalClientDirectory: file}, "is not a directory"},
	} {
		require.ErrorContains(t, test.options.Validate(), test.want, "%+v", test.options)
	}
}
