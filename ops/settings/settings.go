// Package settings makes flags, environment variables and configuration keys out of option structs, so that they cannot drift apart.
//
// A field takes part when it has a flag tag:
//
//	Listen string        `flag:"http-listen" default:"127.0.0.1:4437" usage:"address that HTTP is served on"`
//	Limit  int64         `flag:"limit" default:"64MiB" unit:"bytes" usage:"…"`
//
// The flag is --http-listen, the variable VARVE_HTTP_LISTEN and the key of the configuration file http-listen. Fields of struct type are
// walked into.
package settings

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable.
const EnvPrefix = "VARVE"

// Env is the environment variable of a flag.
func Env(flag string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Default gives a struct of options with the defaults of its tags. It panics when a tag does not parse, which a test of the component shows.
func Default[T any]() T {
	var options T
	if err := Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &options); err != nil {
		panic(err)
	}
	return options
}

// Bind adds a flag for every tagged field of the struct that options points to, sets the fields to their defaults, and lets the flags write
// to them.
func Bind(flags *pflag.FlagSet, options any) error {
	v := reflect.ValueOf(options)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("options of type %T: want a pointer to a struct", options)
	}
	return bindStruct(flags, v.Elem())
}

func bindStruct(flags *pflag.FlagSet, v reflect.Value) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, tagged := field.Tag.Lookup("flag")
		if !tagged {
			if field.Type.Kind() == reflect.Struct && field.IsExported() {
				if err := bindStruct(flags, v.Field(i)); err != nil {
					return err
				}
			}
			continue
		}
		if flags.Lookup(name) != nil {
			return fmt.Errorf("option %s of %s: the flag is taken", name, v.Type())
		}
		value, err := valueOf(v.Field(i), field.Tag.Get("unit"))
		if err != nil {
			return fmt.Errorf("option %s of %s: %w", name, v.Type(), err)
		}
		text := field.Tag.Get("default")
		if err := value.Set(text); err != nil {
			return fmt.Errorf("option %s of %s: default %q: %w", name, v.Type(), text, err)
		}
		flag := flags.VarPF(value, name, "", field.Tag.Get("usage"))
		flag.DefValue = text
		if value.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return nil
}
