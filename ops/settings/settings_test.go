package settings

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type inner struct {
	Wait time.Duration `flag:"wait" default:"1s" usage:"how long"`
}

type options struct {
	Name  string   `flag:"the-name" default:"x" usage:"a name"`
	Limit int64    `flag:"limit" default:"64KiB" unit:"bytes" usage:"a limit"`
	Count int      `flag:"count" default:"3" usage:"a count"`
	On    bool     `flag:"on" default:"false" usage:"a switch"`
	List  []string `flag:"list" default:"a,b" usage:"a list"`
	Inner inner
}

func TestDefaultsComeFromTags(t *testing.T) {
	o := Default[options]()
	require.Equal(t, options{Name: "x", Limit: 65536, Count: 3, List: []string{"a", "b"}, Inner: inner{Wait: time.Second}}, o)
}

// load parses args with the given file and returns what came of it.
func load(t *testing.T, file string, args ...string) (options, error) {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	require.NoError(t, Bind(flags, &o))
	require.NoError(t, flags.Parse(args))
	return o, Load(flags, file)
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "varve.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := write(t, "the-name: file\nlimit: 1MiB\nwait: 3s\non: true\n")
	t.Setenv("VARVE_THE_NAME", "env")
	t.Setenv("VARVE_LIMIT", "2MiB")
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	require.NoError(t, Bind(flags, &o))
	require.NoError(t, flags.Parse([]string{"--the-name", "flag"}))
	require.NoError(t, Load(flags, file))
	require.Equal(t, "flag", o.Name)
	require.EqualValues(t, 2<<20, o.Limit)
	require.Equal(t, 3*time.Second, o.Inner.Wait)
	require.True(t, o.On)
	require.Equal(t, 3, o.Count)
}

func TestMistakesAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ file, env, want string }{
		"unknown key":     {file: "nmae: x\n", want: `there is no setting "nmae"`},
		"a map":           {file: "list: [{a: b}]\n", want: "list: [map[a:b]] is neither a value nor a list of values"},
		"a list":          {file: "count: [3]\n", want: "count: [3] is a list, want one value"},
		"bad value":       {file: "count: many\n", want: `count: "many" is no whole number`},
		"bad environment": {env: "soon", want: `VARVE_WAIT: "soon" is no duration`},
		"not a YAML file": {file: "a: [", want: "configuration file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := ""
			if c.file != "" {
				file = write(t, c.file)
			}
			if c.env != "" {
				t.Setenv("VARVE_WAIT", c.env)
			}
			_, err := load(t, file)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := load(t, "/does/not/exist.yaml")
	require.ErrorContains(t, err, "/does/not/exist.yaml")
}

func TestFilesOfEveryKind(t *testing.T) {
	want := options{Name: "n", Limit: 5_000_000_000, Count: 7, On: true, List: []string{"x", "y"}, Inner: inner{Wait: 2 * time.Second}}
	for name, text := range map[string]string{
		"varve.yaml": "the-name: n\nlimit: 5000000000\ncount: 7\non: true\nlist: [x, y]\nwait: 2s\n",
		"varve.toml": "the-name = \"n\"\nlimit = 5000000000\ncount = 7\non = true\nlist = [\"x\", \"y\"]\nwait = \"2s\"\n",
		"varve.json": `{"the-name": "n", "limit": 5000000000, "count": 7, "on": true, "list": "x,y", "wait": "2s"}`,
	} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := load(t, file)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	file := filepath.Join(t.TempDir(), "varve.txt")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := load(t, file)
	require.ErrorContains(t, err, "must end in .yaml, .toml or .json")
}

func TestUnknownVariablesAreNamed(t *testing.T) {
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	require.NoError(t, Bind(flags, &o))
	environ := []string{"VARVE_THE_NAME=x", "VARVE_THE_NMAE=x", "VARVE_CONFIG=f", "VARVE_TEST_SEED=1", "VARVE_PORT=tcp://10.0.0.1:9092",
		"VARVE_PORT_9092_TCP_ADDR=10.0.0.1", "VARVE_SERVICE_HOST=10.0.0.1", "PATH=/bin", "VARVEX=1", "VARVE_CUONT=3"}
	require.Equal(t, []string{"VARVE_CUONT", "VARVE_THE_NMAE"}, Unknown(flags, environ, "config"))
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "1KiB": 1024, "2 MiB": 2 << 20, "3GB": 3e9, "-1": -1, "5B": 5} {
		got, err := ParseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "x", "1XB", "9223372036854775807KiB", "1.5MiB"} {
		_, err := ParseBytes(text)
		require.Error(t, err, text)
	}
}

func TestFlagIsTakenOnlyOnce(t *testing.T) {
	var o struct {
		A, B inner
	}
	require.ErrorContains(t, Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &o), "the flag is taken")
}
