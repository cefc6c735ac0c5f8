package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Load fills the flags that the command line did not set: from the environment, then from the configuration file (YAML, TOML or JSON by its
// ending; "" for none). A key of the file that is no flag is refused: a setting that is misspelt must not be silently the default.
func Load(flags *pflag.FlagSet, file string) error {
	keys, err := readFile(flags, file)
	if err != nil {
		return err
	}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			return
		}
		if text, ok := os.LookupEnv(Env(f.Name)); ok {
			if err := f.Value.Set(text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", Env(f.Name), err))
			}
			return
		}
		if text, ok := keys[f.Name]; ok {
			if err := f.Value.Set(text); err != nil {
				errs = append(errs, fmt.Errorf("configuration file %s: %s: %w", file, f.Name, err))
			}
		}
	})
	return errors.Join(errs...)
}

func readFile(flags *pflag.FlagSet, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	v := viper.New()
	v.SetConfigFile(file)
	err := v.ReadInConfig()
	var unsupported viper.UnsupportedConfigError
	switch {
	case errors.As(err, &unsupported):
		return nil, fmt.Errorf("configuration file %s: its name must end in .yaml, .toml or .json", file)
	case err != nil:
		return nil, fmt.Errorf("configuration file %s: %w", file, err)
	}
	keys := map[string]string{}
	all := v.AllKeys()
	slices.Sort(all)
	for _, key := range all {
		flag := flags.Lookup(key)
		if flag == nil || key == "config" {
			return nil, fmt.Errorf("configuration file %s: there is no setting %q", file, key)
		}
		if keys[key], err = text(v.Get(key), flag.Value.Type() == "strings"); err != nil {
			return nil, fmt.Errorf("configuration file %s: %s: %w", file, key, err)
		}
	}
	return keys, nil
}

// text is a value of a configuration file as a flag would have it; lists only where the setting is one.
func text(value any, isList bool) (string, error) {
	list, ok := value.([]any)
	switch {
	case !ok:
		list = []any{value}
	case !isList:
		return "", fmt.Errorf("%v is a list, want one value", value)
	}
	all := make([]string, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case []any, map[string]any:
			return "", fmt.Errorf("%v is neither a value nor a list of values", value)
		case nil: // a key without a value
		case float64: // any number of a JSON file
			all[i] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			all[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(all, ","), nil
}

// Unknown lists the environment variables that begin as the settings do and that none of the flags has: a misspelt one must be seen. Variables of tests and those that
// Kubernetes makes of a service with that name are left out, as are those in other.
func Unknown(flags *pflag.FlagSet, environ []string, other ...string) []string {
	known := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { known[Env(f.Name)] = true })
	for _, name := range other {
		known[Env(name)] = true
	}
	var unknown []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, EnvPrefix+"_")
		if !ours || known[name] || strings.HasPrefix(rest, "TEST_") || rest == "PORT" || strings.HasPrefix(rest, "PORT_") || strings.HasPrefix(rest, "SERVICE_") {
			continue
		}
		unknown = append(unknown, name)
	}
	slices.Sort(unknown)
	return unknown
}
