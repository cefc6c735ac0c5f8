package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"

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
				errs = append(errs, fmt.Errorf("%s: %s: %w", file, f.Name, err))
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
	if err := v.ReadInConfig(); err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", file, err)
	}
	keys := map[string]string{}
	all := v.AllKeys()
	slices.Sort(all)
	for _, key := range all {
		if flags.Lookup(key) == nil || key == "config" {
			return nil, fmt.Errorf("configuration file %s: there is no setting %q", file, key)
		}
		keys[key] = v.GetString(key)
	}
	return keys, nil
}
