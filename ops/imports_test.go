package ops_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/varvedb/varve/"

// forbidden lists, for each part of the tree, what it must not import (tests included, but for the exceptions below). Longest match counts for nothing: all rules
// whose part holds a file apply to it.
var forbidden = []struct {
	part    string
	imports []string
	why     string
}{
	{"layer", []string{module + "wal", module + "nodes", module + "kafka", module + "http", module + "wiring"}, "the layer knows nothing of what is above it"},
	{"wal", []string{module + "nodes", module + "kafka", module + "http", module + "wiring"}, "the write-ahead log knows nothing of what is above it"},
	{"nodes", []string{module + "kafka", module + "http", module + "wiring"}, "a node knows no protocol"},
	{"kafka", []string{module + "http", module + "wiring", module + "wal/objects/s3"}, "protocols do not know each other"},
	{"http", []string{module + "kafka", module + "wiring"}, "protocols do not know each other"},
	{"ops", []string{module + "layer", module + "wal", module + "nodes", module + "kafka", module + "http", module + "wiring"}, "ops is used by all and uses none"},
}

// only lists what may import a library, and nothing else.
var only = []struct {
	imports string
	parts   []string
}{
	{"github.com/cockroachdb/pebble", []string{"layer/embedded"}},
	{"github.com/apple/foundationdb", []string{"layer/fdb", "layer/kv/tuple"}},
	{"github.com/aws/", []string{"wal/objects"}},
	{"github.com/labstack/echo", []string{"http"}},
	{"go.uber.org/fx", []string{"wiring"}},
	{"github.com/spf13/cobra", []string{"cmd"}},
	// Engines are opened by the wiring, and by kvtest for every test: no test chooses its own.
	{module + "layer/embedded", []string{"layer/embedded", "layer/kvtest", "layer/kv/faults", "wiring", "cmd", "integration/process"}},
	{module + "layer/fdb", []string{"layer/fdb", "layer/kvtest", "wiring", "integration/process"}},
}

func TestImportsPointOneWay(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	files := 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		place, err := filepath.Rel(root, path)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			checkImport(t, filepath.ToSlash(place), imported)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 100, "the files of this module were not found")
}

func checkImport(t *testing.T, file, imported string) {
	t.Helper()
	for _, rule := range forbidden {
		for _, bad := range rule.imports {
			if in(file, rule.part) && in(imported, bad) && !strings.HasPrefix(imported, module+rule.part) {
				t.Errorf("%s imports %s: %s", file, imported, rule.why)
			}
		}
	}
	for _, rule := range only {
		if !strings.HasPrefix(imported, rule.imports) || imported == module+"layer/fdb/fdbtest" {
			continue
		}
		allowed := false
		for _, part := range rule.parts {
			allowed = allowed || in(file, part)
		}
		if !allowed {
			t.Errorf("%s imports %s, which only %s may", file, imported, strings.Join(rule.parts, ", "))
		}
	}
}

// in tells whether a path is a part of the tree or below it.
func in(path, part string) bool { return path == part || strings.HasPrefix(path, part+"/") }
