// Package fdbtest builds the fake libfdb_c of the tests and cluster files for it.
package fdbtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// ErrNoCompiler: there is no C compiler, which make needs as well for FoundationDB support.
var ErrNoCompiler = errors.New("no C compiler: install gcc or clang, or set CC")

// BuildLibrary compiles the fake client library into directory, with the preprocessor definitions given, and returns its
// path. See client/testdata/fake_fdb_c.c for what it is and for its commands.
func BuildLibrary(directory, name string, definitions ...string) (string, error) {
	compiler, err := compiler()
	if err != nil {
		return "", err
	}
	library := filepath.Join(directory, name)
	arguments := []string{"-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-I" + filepath.Join(clientDir(), "shim")}
	for _, definition := range definitions {
		arguments = append(arguments, "-D"+definition)
	}
	arguments = append(arguments, "-o", library, sources()[0], "-lpthread")
	if output, err := exec.Command(compiler, arguments...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the fake client library with %s: %w\n%s", compiler, err, output)
	}
	return library, nil
}

// clientDir is the folder client in the source tree.
func clientDir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(filepath.Dir(here)), "client")
}

// sources are what the fake library is made of; the first one is compiled, the others are included.
func sources() []string {
	headers := filepath.Join(clientDir(), "shim", "foundationdb")
	return []string{
		filepath.Join(clientDir(), "testdata", "fake_fdb_c.c"),
		filepath.Join(clientDir(), "testdata", "shared_log.h"),
		filepath.Join(headers, "fdb_c.h"),
		filepath.Join(headers, "functions.h"),
	}
}

// IgnoreNetwork is for leak checks of processes that opened a cluster: the client's network thread lives until
// fdb.StopNetwork.
func IgnoreNetwork() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/apple/foundationdb/bindings/go/src/fdb.executeWithRunningNetworkThread.func1")
}

func compiler() (string, error) {
	for _, name := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// ClusterFile writes a cluster file into a new directory and returns its path. The fake library has one store per path.
func ClusterFile(tb testing.TB) string {
	tb.Helper()
	return clusterFile(tb, tb.TempDir(), "fake")
}

func clusterFile(tb testing.TB, directory, description string) string {
	tb.Helper()
	for _, source := range sources() {
		if _, err := os.Stat(source); err != nil { // go's test cache notices what a test looks at, but not what the compiler reads
			tb.Fatal(err)
		}
	}
	path := filepath.Join(directory, "fdb.cluster")
	if err := os.WriteFile(path, []byte("# written by a test\n"+description+":Varve1@127.0.0.1:4500\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
