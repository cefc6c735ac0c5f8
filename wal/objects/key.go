package objects

import (
	"fmt"
	"strings"
)

// Limits of a key, in bytes. A part is what lies between slashes; file systems end at 255.
const (
	MaxKey  = 512
	MaxPart = 255
)

// ValidateKey checks that every store can hold an object of this key; the error is an ErrKey that says what is wrong with it.
func ValidateKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrKey)
	}
	if err := checkBytes(key); err != nil {
		return err
	}
	for part := range strings.SplitSeq(key, "/") {
		if err := checkPart(part); err != nil {
			return fmt.Errorf("%w in %q", err, key)
		}
	}
	return nil
}

// ValidatePrefix checks that keys can begin with the prefix. The empty prefix is every key's.
func ValidatePrefix(prefix string) error {
	if err := checkBytes(prefix); err != nil {
		return err
	}
	// The last part may be the beginning of a longer one, also when it is empty, "." or "..".
	whole := strings.LastIndexByte(prefix, '/')
	if whole < 0 {
		return nil
	}
	return ValidateKey(prefix[:whole])
}

func checkBytes(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes, at most %d, it begins with %.64q", ErrKey, len(key), MaxKey, key)
	}
	for i := range len(key) {
		if !keyByte(key[i]) {
			return fmt.Errorf("%w: byte %d (%q) of %q is not one of A-Z a-z 0-9 . _ - /", ErrKey, i, key[i], key)
		}
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' || c == '/'
}

func checkPart(part string) error {
	switch {
	case part == "":
		return fmt.Errorf("%w: an empty part", ErrKey)
	case part == "." || part == "..":
		return fmt.Errorf("%w: a part %q", ErrKey, part)
	case len(part) > MaxPart:
		return fmt.Errorf("%w: a part of %d bytes, at most %d,", ErrKey, len(part), MaxPart)
	}
	return nil
}
